"""Tables of Delta Lake against a real broker: kept by key, appended to, and read."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from odradek_api.parse import load
from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.outputs import outputs
from odradek_api.pipeline.status import JobStatus
from odradek_testkit.pipelines import Pipelines
from spark_tests.test_examples import data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "compacted"
CUSTOMER = "id INT, name STRING"
UPSERT: dict[str, Any] = {"path": "table", "format": "delta", "key": ["id"],
                          "deleteWhen": "_deleted"}  # fmt: skip


def run(spark: SparkSession, job: Job) -> JobStatus:
    from odradek_spark.jobs.run import JobRun

    made = JobRun(job)
    assert made.run_in(spark) == 0, made.status
    return made.status


def by_key(pipelines: Pipelines, topic: str, **changes: Any) -> Job:
    spec: dict[str, Any] = {
        "sources": [{"topics": [topic], "tombstones": True, "maxOffsetsPerTrigger": 4,
                     "format": {"type": "json", "schema": "name STRING NOT NULL"}}],
        "steps": [{"sql": "SELECT CAST(_key AS INT) AS id, name, _deleted, _offset FROM source"}],
        "sink": {"table": UPSERT},
    }  # fmt: skip
    return pipelines.job(**{**spec, **changes})


def rows(spark: SparkSession, pipelines: Pipelines) -> dict[int, str]:
    found = spark.read.format("delta").load(str(pipelines.directory / "table")).collect()
    assert len({row.id for row in found}) == len(found)
    return {row.id: row.name for row in found}


@pytest.mark.long  # four runs that merge: 15 s of CPU, as much as all quick tests of jobs
def test_a_table_is_kept_equal_to_a_topic_by_key(spark: SparkSession, pipelines: Pipelines) -> None:
    """Replaced and deleted within a batch and across batches and runs; its change feed is read."""
    topic, changes = pipelines.topic(1), pipelines.topic(1)
    for key, name in ((1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, None), (2, None), (2, "e"),
                      (4, "f"), (4, None), (5, None)):  # fmt: skip
        pipelines.produce(topic, [{"name": name} if name else None], key=str(key))
    status = run(spark, by_key(pipelines, topic))
    assert rows(spark, pipelines) == {1: "c", 2: "e"}
    assert status.queries["main"].rows_out > 0
    fed = pipelines.job(
        "changes", checkpoint="another",
        sources=[{"table": {"path": "table", "changes": True}}],
        steps=[{"sql": "SELECT id, name, _change_type AS type FROM source"}],
        sink={"topic": {"name": changes, "key": "id"}},
    )  # fmt: skip
    run(spark, fed)
    pipelines.produce(topic, [None], key="1")
    pipelines.produce(topic, [{"name": "g"}], key="3")
    run(spark, by_key(pipelines, topic))
    assert rows(spark, pipelines) == {2: "e", 3: "g"}

    run(spark, fed)  # it began with the rows that were there
    found = {(one["id"], one["type"]) for one in pipelines.values(changes)}
    assert found == {(1, "insert"), (2, "insert"), (1, "delete"), (3, "insert")}


def test_a_batch_that_was_written_is_not_written_again(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """A paused driver that writes an old batch after its successor: the table does not go back."""
    from odradek_spark.session.files import Store
    from odradek_spark.sinks.upserts import DELETED, ORDER, Upserts

    job = by_key(pipelines, "unread")
    sink = Upserts(job, outputs(job.spec)[0], "identity-of-the-checkpoint")

    def batch(name: str) -> Any:
        return spark.createDataFrame(
            [(1, name, 0, False)], f"{CUSTOMER}, {ORDER} INT, {DELETED} BOOLEAN"
        )

    sink.create(Store(spark), batch("old"))
    sink(batch("old"), 0)
    sink(batch("new"), 1)
    sink(batch("old"), 0)
    assert rows(spark, pipelines) == {1: "new"}


def test_a_table_that_is_appended_to_is_a_source(spark: SparkSession, pipelines: Pipelines) -> None:
    topic, copy = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(topic, [{"id": n, "odd": n % 2} for n in range(5)])
    schema = {"type": "json", "schema": "id INT, odd INT"}
    written = {
        "sources": [{"topics": [topic], "format": schema}],
        "sink": {"table": {"path": "table", "format": "delta", "partitionBy": ["odd"]}},
    }
    run(spark, pipelines.job("write", **written))
    pipelines.produce(topic, [{"id": 5, "odd": 1}])
    run(spark, pipelines.job("write", **written))
    run(spark, pipelines.job(
        "read", checkpoint="another", sources=[{"table": {"path": "table"}}],
        sink={"topic": {"name": copy}},
    ))  # fmt: skip
    assert sorted(one["id"] for one in pipelines.values(copy)) == list(range(6))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"key": ["nobody"]}, r"spec\.sink\.table\.key: there is no column nobody"),
        ({"order": "nobody"}, r"spec\.sink\.table\.order: .*nobody.*; do the steps select it"),
        ({"deleteWhen": "nobody"}, r"spec\.sink\.table\.deleteWhen: .*nobody"),
    ],
)
def test_refusals_name_the_field(
    spark: SparkSession, pipelines: Pipelines, table: dict[str, Any], words: str
) -> None:
    job = by_key(pipelines, pipelines.topic(1), sink={"table": {**UPSERT, **table}})
    with pytest.raises(SpecError, match=words):
        run(spark, job)


@pytest.mark.long  # two whole runs; the first test here keeps a table equal to its topic, too
def test_the_example(spark: SparkSession, pipelines: Pipelines) -> None:
    """Its table is equal to its compacted topic, after each of two runs."""
    path = importlib.util.spec_from_file_location("check", EXAMPLE / "check.py")
    assert path is not None
    assert path.loader is not None
    check = importlib.util.module_from_spec(path)
    path.loader.exec_module(check)
    directory = pipelines.directory / "example"
    shutil.copytree(EXAMPLE, directory)
    (pipeline,) = [r for r in load([directory]) if r.kind == "SparkPipeline"]
    (source,) = pipeline.spec.sources
    topic = pipelines.topic(3)
    source = msgspec.structs.replace(source, topics=[topic], max_offsets_per_trigger=200)
    spec = msgspec.structs.replace(pipeline.spec, mode="availableNow", sources=[source])
    job = Job(
        name="customers",
        spec=spec,
        clusters={"default/main": pipelines.bootstrap},
        checkpoint=str(pipelines.directory / "checkpoint"),
        directory=str(directory),
    )
    for seed in (1, 2):
        made = ((topic, key, value, at) for _, key, value, at in data.customers(400, seed))
        data.send(pipelines.bootstrap, made)
        run(spark, job)
        there = check.last_of_topic(pipelines.bootstrap, topic)
        assert len(there) > 20
        assert check.rows_of_table(spark, directory / "table") == there
