"""An archive of the classes that Spark loads: the start of a session takes half of the CPU.

    python -m odradek_spark.session.class_archive     # `make spark`; 160 MB, 25 s of CPU, once

Java (17 or newer) writes it at the end of a small session, into the Python environment, and maps it
into each later JVM. It is valid for one Java and one installation of pyspark; another Java ignores
it. A session without the archive only starts more slowly.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from odradek_spark.session.jars import SPARK_VERSION

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# No warning on the driver's output if Java does not accept the archive.
QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def class_archive() -> Path | None:
    """Where it is, or would be; None: no Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return None
    real = Path(java).resolve()
    key = hashlib.sha256(f"{real} {real.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    return Path(sys.prefix) / "share" / "odradek" / f"spark-{SPARK_VERSION}-{key}.jsa"


def archive_options() -> str:
    """Options of a JVM that uses the archive; empty without one."""
    archive = class_archive()
    if archive is None or not archive.exists() or " " in str(archive):  # options are split there
        return ""
    return f"-XX:SharedArchiveFile={archive} {QUIET}"


def make(archive: Path) -> None:
    """Runs a streaming query and a batch query, whose classes are archived when Spark ends."""
    from odradek_spark.session.start import start_session

    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)  # of a former installation of pyspark
    partial = archive.with_suffix(f".{os.getpid()}")
    options = f"-XX:+UseSerialGC -XX:-UsePerfData -XX:ArchiveClassesAtExit={partial} -Xlog:disable"
    spark = start_session("class-archive", "local[2]", {JAVA_OPTIONS: options})
    spark.sparkContext.setLogLevel("OFF")
    gateway = spark.sparkContext._gateway
    rows = spark.readStream.format("rate").load().selectExpr("to_json(struct(value)) AS text")
    parsed = rows.selectExpr("from_json(text, 'value BIGINT') AS row").groupBy("row").count()
    query = parsed.writeStream.format("noop").outputMode("complete").trigger(availableNow=True)
    query.start().awaitTermination()
    spark.range(10).groupBy("id").count().collect()
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    if gateway.proc.wait() == 0 and partial.exists():
        partial.rename(archive)
    partial.unlink(missing_ok=True)  # incomplete: Java would crash with it


def main() -> None:
    archive = class_archive()
    if archive is not None:
        make(archive)


if __name__ == "__main__":
    main()
