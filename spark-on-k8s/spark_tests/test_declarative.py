"""Projects of Spark Declarative Pipelines against a real broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.status import FlowStatus
from odradek_testkit.pipelines import PATIENCE_S, Pipelines
from odradek_testkit.waiting import wait_until
from spark_tests.conftest import CONNECT_TOKEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek_spark.jobs.declarative import ProjectRun

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "declarative"
READ = """
from pyspark import pipelines as dp
from pyspark.sql import functions as f
from odradek_spark.project import kafka_options

@dp.table(name="NAME")
def words():
    reader = spark.readStream.format("kafka").options(**kafka_options())
    records = reader.option("subscribe", "TOPIC").option("startingOffsets", "earliest").load()
    return records.select(f.col("value").cast("string").alias("word"))
"""


def project(pipelines: Pipelines, name: str, configuration: Any = None, **files: str) -> Job:
    """A job with these files, for example read_py="…"."""
    directory = pipelines.directory / "project"
    directory.mkdir(exist_ok=True)
    names = [key.replace("_", ".") for key in files]
    for file, text in zip(names, files.values(), strict=True):
        (directory / file).write_text(text)
    spec = {"name": name, "storage": "unused", "configuration": configuration or {},
            "libraries": [{"glob": {"include": file}} for file in names]}  # fmt: skip
    (directory / "spark-pipeline.yml").write_text(json.dumps(spec))
    return pipelines.job(name, sdp={"path": "project"})


def run(spark: SparkSession, job: Job) -> ProjectRun:
    from odradek_spark.jobs.declarative import ProjectRun

    made = ProjectRun(job, CONNECT_TOKEN)
    made.run_in(spark)
    return made


def flows(made: ProjectRun) -> dict[str, FlowStatus]:
    return {flow.name: flow for flow in made.status.flows}


def test_each_update_brings_the_tables_up_to_date(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """Each record is in the streaming table once; the flows say what they read, and how much."""
    topic = pipelines.topic()
    pipelines.produce(topic, [b"a", b"b", b"a"])
    job = project(
        pipelines, "words",
        read_py=READ.replace("TOPIC", topic).replace("NAME", "words"),
        counts_sql="CREATE MATERIALIZED VIEW counts AS "
                   "SELECT word, count(*) AS n FROM words GROUP BY word;",
    )  # fmt: skip
    first = run(spark, job)
    assert first.status.state == "Completed", first.status
    assert {name: (flow.state, flow.inputs) for name, flow in flows(first).items()} == {
        "words": ("Completed", []),
        "counts": ("Completed", ["words"]),
    }
    assert flows(first)["words"].rows == 3
    assert first.status.queries["words"].lag == {topic: 0}
    pipelines.produce(topic, [b"c"])
    second = run(spark, job)
    assert flows(second)["words"].rows == 1, "the checkpoint goes on"
    found = {row.word: row.n for row in spark.table("counts").collect()}
    assert found == {"a": 2, "b": 1, "c": 1}
    assert (pipelines.directory / "checkpoint" / "storage").is_dir()


def test_a_failed_flow_is_named(spark: SparkSession, pipelines: Pipelines) -> None:
    job = project(
        pipelines, "broken", {"spark.sql.pipelines.maxFlowRetryAttempts": "0"},
        good_sql="CREATE MATERIALIZED VIEW good AS SELECT 1 AS one;",
        bad_sql="CREATE MATERIALIZED VIEW bad AS "
                "SELECT raise_error('no such visitor') AS two FROM good;",
    )  # fmt: skip
    made = run(spark, job)
    assert made.status.state == "Failed"
    assert made.status.field == "spec.sdp"
    assert made.status.message.startswith("flow bad: ")
    assert "no such visitor" in made.status.message
    assert flows(made)["good"].state == "Completed"
    assert flows(made)["bad"].state == "Failed"


def test_updates_follow_each_other(spark: SparkSession, pipelines: Pipelines) -> None:
    """mode: streaming: one run, whose second update reads what came after the first one."""
    from odradek_spark.jobs.declarative import ProjectRun

    topic = pipelines.topic()
    pipelines.produce(topic, [b"a", b"b"])
    job = project(pipelines, "again", read_py=READ.replace("TOPIC", topic).replace("NAME", "again"))
    spec = msgspec.structs.replace(job.spec, mode="streaming", trigger="1 second")
    made = ProjectRun(msgspec.structs.replace(job, spec=spec), CONNECT_TOKEN)

    def produce_and_stop() -> None:
        try:
            wait_until(lambda: rows_read(made) == 2, deadline_s=PATIENCE_S)
            pipelines.produce(topic, [b"c"])
            wait_until(lambda: rows_read(made) == 3, deadline_s=PATIENCE_S)
        finally:
            made.stop()

    watcher = threading.Thread(target=produce_and_stop)
    watcher.start()
    assert made.run_in(spark) == 0
    watcher.join()
    assert made.status.state == "Stopped"
    assert rows_read(made) == 3


def rows_read(made: ProjectRun) -> int:
    return sum(flow.rows for flow in made.status.flows)


def test_a_stop_ends_an_update(spark: SparkSession, pipelines: Pipelines) -> None:
    """As SIGTERM does: the flow that is running is aborted, and the driver can end."""
    from odradek_spark.jobs.declarative import ProjectRun

    # Seconds of work, no more: Spark cannot kill a task in a loop that was not compiled.
    slow = "SELECT count(*) AS n FROM range(4000000) WHERE sha2(string(id), 512) = 'a'"
    job = project(pipelines, "slow", slow_sql=f"CREATE MATERIALIZED VIEW slow AS {slow};")
    made = ProjectRun(job, CONNECT_TOKEN)

    def runs() -> bool:
        return any(flow.state == "Running" for flow in made.status.flows)

    def stop_when_it_runs() -> None:
        try:
            wait_until(runs, deadline_s=PATIENCE_S)
        finally:
            made.stop()

    watcher = threading.Thread(target=stop_when_it_runs)
    watcher.start()
    assert made.run_in(spark) == 0
    watcher.join()
    assert made.status.state == "Stopped"
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), deadline_s=PATIENCE_S)


def test_a_dry_run_runs_nothing(spark: SparkSession, pipelines: Pipelines) -> None:
    from odradek_spark.jobs.declarative import dry_run

    good = READ.replace("TOPIC", "nobody").replace("NAME", "unread")
    seen = dry_run(spark, project(pipelines, "dry", read_py=good,
                                  sums_sql="CREATE MATERIALIZED VIEW sums AS "
                                           "SELECT count(*) AS n FROM unread;"),
                   CONNECT_TOKEN)  # fmt: skip
    assert {flow.name: flow.inputs for flow in seen.flows} == {"unread": [], "sums": ["unread"]}
    assert not (pipelines.directory / "checkpoint").exists()
    assert not spark.catalog.tableExists("unread")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a_sql": "CREATE MATERIALIZED VIEW a AS SELECT nobody FROM range(3);"},
         r"spec\.sdp: .*UNRESOLVED_COLUMN.*nobody"),
        ({"a_sql": "CREATE MATERIALIZED VIEW a AS SELECT * FROM nobody;"},
         r"spec\.sdp: .*TABLE_OR_VIEW_NOT_FOUND"),
        ({"a_py": "\nx = 1 / 0\n"}, r"spec\.sdp: a\.py line 2: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_wrong_project_is_refused(
    spark: SparkSession, pipelines: Pipelines, files: dict[str, str], words: str
) -> None:
    from odradek_spark.jobs.declarative import dry_run

    with pytest.raises(SpecError, match=words):
        dry_run(spark, project(pipelines, "wrong", **files), CONNECT_TOKEN)


def test_a_project_that_is_not_there(spark: SparkSession, pipelines: Pipelines) -> None:
    with pytest.raises(SpecError, match=r"spec\.sdp\.path: .*nowhere has no spark-pipeline\.yml"):
        run(spark, pipelines.job(sdp={"path": "nowhere"}))


@pytest.mark.long  # three drivers, each with a Spark and a catalog of its own
def test_the_example_goes_on_in_a_new_driver(pipelines: Pipelines) -> None:
    """Its plan; then two updates by two drivers: every visit is in the table and the topic once."""
    from spark_tests.test_examples import data

    shutil.copytree(EXAMPLE, pipelines.directory, dirs_exist_ok=True)
    for name in ("visits", "blog-visits"):
        pipelines.topic(3, name)
    manifest = pipelines.directory / "pipeline.yaml"
    manifest.write_text(manifest.read_text().replace("trigger: 10 seconds", "mode: availableNow"))
    planned = odradek(pipelines, "plan")
    assert "flow page_views: reads visits" in planned
    pages: Counter[str] = Counter()
    for seed in (1, 2):
        data.send(pipelines.bootstrap, data.web_activity(200, seed))
        for (_, page), n in data.page_views(data.web_activity(200, seed)).items():
            pages[page] += n
        odradek(pipelines, "run")
    assert len(pipelines.records("blog-visits")) == pages["/blog"]
    (state,) = (pipelines.directory / "state").glob("pipeline.*")
    said = json.loads((state / "status.json").read_text())
    assert {flow["name"]: flow["state"] for flow in said["flows"]} == dict.fromkeys(
        ("blog_visits", "page_views", "visits"), "Completed"
    )
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(state / "checkpoint" / "tables" / "page_views")
    found: Counter[str] = Counter()
    for row in table.to_pylist():
        found[row["page"]] += row["views"]
    assert found == pages


def odradek(pipelines: Pipelines, command: str) -> str:
    arguments = ["-f", pipelines.directory / "pipeline.yaml", "-b", pipelines.bootstrap,
                 "--state", pipelines.directory / "state"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", "pipeline", command, *map(str, arguments)],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
