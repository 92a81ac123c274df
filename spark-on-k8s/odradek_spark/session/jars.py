"""Jars that pyspark lacks (pom.xml), fetched once with Maven and verified by hash.

They are cached in $XDG_CACHE_HOME/odradek/spark-4.2.0-<digest of their hashes>; ODRADEK_SPARK_JARS
names another directory, as in our image. `python -m odradek_spark.session.jars` fetches them and
prints the directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SPARK_VERSION = "4.2.0"
HERE = Path(__file__).parent
HASHES = "jars.sha256"
FETCH_S_MAX = 900.0


class JarsMissingError(Exception):
    """Jars are missing and cannot be fetched; the message says what to do."""


def jars() -> list[Path]:
    """Paths of all jars; their hashes are verified when they are fetched."""
    given = os.environ.get("ODRADEK_SPARK_JARS")
    directory = Path(given) if given else _cached()
    found = [directory / name for name in hashes()]
    missing = [path.name for path in found if not path.is_file()]
    if missing:
        raise JarsMissingError(f"{missing[0]} is missing in {directory}")
    return found


def hashes() -> dict[str, str]:
    """File name → SHA-256, from jars.sha256."""
    lines = (HERE / HASHES).read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _cached() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    digest = hashlib.sha256((HERE / HASHES).read_bytes()).hexdigest()[:8]
    directory = cache / f"spark-{SPARK_VERSION}-{digest}"
    if directory.is_dir():
        return directory
    if shutil.which("mvn") is None:
        raise JarsMissingError("Spark's Kafka connector is fetched with Maven: "
                               "apt-get install -y maven, or `make spark` as root")  # fmt: skip
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "spark.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            _fetch(directory)
    return directory


def _fetch(target: Path) -> None:
    """Fetches into a temporary directory, which is renamed when it is complete."""
    partial = Path(tempfile.mkdtemp(prefix="spark-partial-", dir=target.parent))
    try:
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False
        )
        if done.returncode != 0:
            raise JarsMissingError(f"Maven could not fetch the jars:\n{done.stdout}{done.stderr}")
        for name, digest in hashes().items():
            path = partial / name
            if not path.is_file() or _sha256(path) != digest:
                raise JarsMissingError(f"{name} does not have the hash in jars.sha256")
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        print(jars()[0].parent)
    except JarsMissingError as error:
        sys.exit(str(error))
