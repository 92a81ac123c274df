"""A checkpoint that Spark 4.0.0 wrote is continued by the pinned version: offsets and state.

The old Spark is real: an environment of its own with pyspark 4.0.0 and the jars of that time, which
runs the same driver.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek_spark.session import jars
from odradek_testkit.pipelines import Pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,  # installs a second pyspark (430 MB) and starts a driver with it
    pytest.mark.timeout(1800),
]

OLD = "4.0.0"
OLD_JARS = {"spark-sql-kafka-0-10_2.13": OLD, "spark-token-provider-kafka-0-10_2.13": OLD,
            "spark-avro_2.13": OLD, "kafka-clients": "3.9.0",
            "commons-pool2": "2.12.0"}  # fmt: skip
SOURCES = ("operator", "spark-on-k8s")
COUNTED = (
    "SELECT window.start AS minute, page, count(*) AS views FROM visits "
    "GROUP BY window(at, '1 minute'), page"
)


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ODRADEK_OLD_SPARK names the Python of an environment that has pyspark 4.0.0 already."""
    if given := os.environ.get("ODRADEK_OLD_SPARK"):
        return Path(given)
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    if not Path(uv).exists():
        pytest.skip("uv is missing: it installs pyspark 4.0.0")
    directory = tmp_path_factory.mktemp("spark-4.0.0")
    run(uv, "venv", "-q", "--python", sys.executable, str(directory))
    python = directory / "bin" / "python"
    packages = [f"pyspark=={OLD}", "confluent-kafka", "msgspec", "cronsim"]
    run(uv, "pip", "install", "-q", "--python", str(python), *packages)
    return python


@pytest.fixture(scope="module")
def old_jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The five jars of the old version, by the pinned pom.xml with other numbers."""
    text = (Path(jars.__file__).parent / "pom.xml").read_text()
    for name, version in OLD_JARS.items():
        head, _, tail = text.partition(f"<artifactId>{name}</artifactId><version>")
        assert tail, name
        text = f"{head}<artifactId>{name}</artifactId><version>{version}{tail[tail.index('<') :]}"
    directory = tmp_path_factory.mktemp("jars")
    (directory / "pom.xml").write_text(text)
    run("mvn", "-q", "-B", "-f", str(directory / "pom.xml"), "dependency:copy-dependencies",
        f"-DoutputDirectory={directory}")  # fmt: skip
    assert len(list(directory.glob("*.jar"))) == len(OLD_JARS)
    return directory


def run(*command: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def with_old_spark(python: Path, directory: Path, document: dict[str, Any]) -> None:
    path = directory / "old-job.json"
    path.write_text(json.dumps(document))
    root = Path(__file__).parents[2]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    env["PYTHONPATH"] = ":".join(str(root / name) for name in SOURCES)
    run(str(python), "-m", "odradek_spark.main", str(path), env=env)


def test_state_and_offsets_of_4_0_are_continued(
    spark: SparkSession, pipelines: Pipelines, old_python: Path, old_jars: Path
) -> None:
    """1. Spark 4.0.0 reads visits of minutes 0 and 1 and closes neither: both are in its state.
    2. The pinned Spark reads visits of minute 1 and one of minute 9, from the same checkpoint.
    3. The counts of minute 1 are of both; no visit was read twice or skipped.
    """
    from odradek_spark.jobs.run import JobRun

    assert find_spec("pyspark") is not None
    topic = pipelines.topic(2)
    schema = "id INT NOT NULL, page STRING NOT NULL, at TIMESTAMP NOT NULL"
    source = {
        "name": "visits",
        "topics": [topic],
        "format": {"type": "json", "schema": schema},
        "watermark": {"column": "at", "delay": "2 minutes"},
        "dedup": {"by": ["id", "at"]},
    }
    spec: Any = {
        "sources": [source],
        "steps": [{"sql": COUNTED}],
        "sink": {"table": {"path": "table"}},
    }

    def visit(number: int, minute: int) -> dict[str, Any]:
        return {"id": number, "page": f"/{number % 3}", "at": f"2026-11-16T12:{minute:02}:01Z"}

    pipelines.produce(topic, [visit(n, n % 2) for n in range(120)])
    document = pipelines.document(**spec)
    conf = {"spark.jars": ",".join(map(str, sorted(old_jars.glob("*.jar"))))}
    old = {**document, "spec": {**document["spec"], "sparkConf": conf}, "master": "local[2,2]"}
    with_old_spark(old_python, pipelines.directory, old)
    status = json.loads((pipelines.directory / "status.json").read_text())
    assert status["state"] == "Completed", status
    assert status["queries"]["main"]["rows"] == 120

    # 60 duplicates of what the old one counted, 60 new ones, and one that closes the windows
    pipelines.produce(topic, [visit(n, n % 2) for n in range(60)])
    pipelines.produce(topic, [visit(n, 1) for n in range(200, 260)])
    pipelines.produce(topic, [visit(1000, 9)])
    job = JobRun(pipelines.job(**spec))
    assert job.run_in(spark) == 0, job.status
    assert job.status.queries["main"].rows == 121
    rows = spark.read.parquet(str(pipelines.directory / "table")).collect()
    seen = {(row.minute.minute, row.page): row.views for row in rows}
    expected = {(minute, page): 20 for minute in (0, 1) for page in ("/0", "/1", "/2")}
    assert seen == {key: n + (20 if key[0] == 1 else 0) for key, n in expected.items()}
