"""Offsets as a consumer group, and batches that adapt to a target, against a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek_spark.sources.group import read_so_far, slowest
from odradek_spark.sources.pacing import LEAST, next_limit
from odradek_testkit.pipelines import PATIENCE_S, Pipelines
from spark_tests.test_jobs import JSON, rows, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def committed(pipelines: Pipelines, group: str, topic: str, partitions: int = 1) -> list[int]:
    consumer = Consumer({"bootstrap.servers": pipelines.bootstrap, "group.id": group})
    places = [TopicPartition(topic, n) for n in range(partitions)]
    found = [place.offset for place in consumer.committed(places, PATIENCE_S)]
    consumer.close()
    return found


def test_offsets_are_a_consumer_group(spark: SparkSession, pipelines: Pipelines) -> None:
    """Of the slowest sink; a reset of the group does not change what the pipeline reads."""
    topic, out = pipelines.topic(2), pipelines.topic(1)
    pipelines.produce(topic, rows(range(30)), partition=0)
    pipelines.produce(topic, rows(range(30, 37)), partition=1)
    group = f"group-of-{topic}"
    spec: dict[str, Any] = {
        "sources": [{"topics": [topic], "format": JSON, "maxOffsetsPerTrigger": 10}],
        "sinks": [{"name": "a", "table": {"path": "a"}}, {"name": "b", "topic": {"name": out}}],
        "consumerGroup": group,
    }
    run(spark, pipelines, **spec)
    assert committed(pipelines, group, topic, 2) == [30, 7]
    consumer = Consumer({"bootstrap.servers": pipelines.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    pipelines.produce(topic, rows(range(37, 40)), partition=1)
    run(spark, pipelines, **spec)
    assert committed(pipelines, group, topic, 2) == [30, 10]
    assert sorted(row["id"] for row in pipelines.values(out)) == list(range(40))


def test_the_slowest_query_decides() -> None:
    report: dict[str, Any] = {"sources": [
        {"description": "KafkaV2[Subscribe[a]]", "endOffset": {"a": {"0": 9, "1": 4}}},
        {"description": "KafkaV2[Subscribe[a]]", "endOffset": '{"a": {"0": 7}}'},
        {"description": "FileStreamSource[file:/x]", "endOffset": {"logOffset": 3}},
    ]}  # fmt: skip
    assert read_so_far(report) == {("a", 0): 7, ("a", 1): 4}
    assert slowest([{("a", 0): 7, ("b", 0): 1}, {("a", 0): 5}]) == {("a", 0): 5, ("b", 0): 1}
    report["sources"][1]["endOffset"] = None
    assert read_so_far(report) is None, "a query that has not begun"


@pytest.mark.parametrize(
    ("limit", "rows_read", "batch_ms", "behind", "expected"),
    [
        (10_000, 10_000, 2000, True, 40_000),  # four times at most
        (10_000, 10_000, 5000, True, 20_000),
        (10_000, 10_000, 5000, False, 10_000),  # it has read all there was
        (40_000, 40_000, 14_000, True, 28_571),
        (40_000, 4_000, 20_000, False, 2_000),  # slower than the limit knew
        (10_000, 10_000, 9000, True, 10_000),
        (10_000, 0, 9000, False, 10_000),
        (150, 150, 60_000, True, LEAST),
    ],
)
def test_the_next_limit(
    limit: int, rows_read: int, batch_ms: int, behind: bool, expected: int
) -> None:
    assert next_limit(limit, rows_read, batch_ms, 10_000.0, behind=behind) == expected


@pytest.mark.long  # its rows take their time on purpose: 22 s
def test_batches_shrink_to_the_target(spark: SparkSession, pipelines: Pipelines) -> None:
    """Each row takes a millisecond; the next driver begins with the limit that was found."""
    topic = pipelines.topic(1)
    pipelines.produce(topic, rows(range(8000)))
    slow = "SELECT id, java_method('java.lang.Thread', 'sleep', 1L) AS slept FROM source"
    spec: dict[str, Any] = {
        "sources": [{"topics": [topic], "format": JSON, "maxOffsetsPerTrigger": 2000}],
        "steps": [{"sql": slow}],
        "sink": {"table": {"path": "out"}},
        "batchTarget": "200 milliseconds",
    }
    said = run(spark, pipelines, **spec).queries["main"]
    assert said.rows == 8000
    assert LEAST <= said.batch_limit < 500, "2000 rows take two seconds"
    assert said.batch > 8000 / 2000
    kept = json.loads((pipelines.directory / "checkpoint/odradek-batch-limit.json").read_text())
    assert kept["limit"] < 1000
    pipelines.produce(topic, rows(range(1000)))
    again = run(spark, pipelines, **spec).queries["main"]
    assert again.rows == 1000
    assert again.batch > said.batch + 1, "the first batch read all 1000"


def test_batches_grow_to_the_target(
    spark: SparkSession, pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a target that no batch reaches the limit quadruples: 100, 400, 1600 …"""
    monkeypatch.setattr("odradek_spark.sources.pacing.FIRST", 100)
    topic = pipelines.topic(1)
    pipelines.produce(topic, rows(range(5000)))
    said = run(
        spark, pipelines, sources=[{"topics": [topic], "format": JSON}],
        sink={"table": {"path": "out"}}, batchTarget="1 hour",
    ).queries["main"]  # fmt: skip
    assert said.rows == 5000
    assert said.batch_limit > 100
    assert said.batch < 5000 / 100 - 1
