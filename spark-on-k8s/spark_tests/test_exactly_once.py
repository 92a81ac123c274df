"""The exactly-once sink: what a task does with the marks that it finds, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from confluent_kafka import KafkaException, Message

from odradek_api.pipeline.job import SpecError
from odradek_spark.sinks.batch_marks import (
    Checkpoint,
    Mark,
    MarkLostError,
    Part,
    TakenOverError,
    decode,
    next_step,
    take_over,
)
from odradek_spark.sinks.exactly_once import Target, claim, write_part, writing
from odradek_testkit.pipelines import Pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW = Checkpoint(identity="c", last_batch=-1, in_flight=False, marked=False)
PART = Part(batch=3, input="i", checkpoint="c", driver="d")


def test_a_driver_takes_over_the_marks_of_its_checkpoint() -> None:
    mark = Mark(checkpoint="c", driver="old", batch=7, input="x")
    assert take_over(mark, NEW, "d") == Mark(checkpoint="c", driver="d", batch=7, input="x")
    assert take_over(None, NEW, "d").batch == -1
    assert take_over(mark, msgspec.structs.replace(NEW, identity="new"), "d").batch == -1


def test_a_lost_mark_matters_only_while_a_batch_is_in_flight() -> None:
    between = Checkpoint(identity="c", last_batch=4, in_flight=False, marked=True)
    assert take_over(None, between, "d").batch == 4
    for mark in (None, Mark(checkpoint="other", driver="e", batch=9)):
        with pytest.raises(MarkLostError, match="whether batch 5 was written"):
            take_over(mark, msgspec.structs.replace(between, in_flight=True), "d")


def test_the_action_of_a_task_for_each_mark() -> None:
    mark = Mark(checkpoint="c", driver="d", batch=2)
    assert next_step(mark, PART) == "write"
    assert next_step(PART.mark(), PART) == "skip"
    assert next_step(msgspec.structs.replace(mark, batch=4), PART) == "skip"
    with pytest.raises(TakenOverError):
        next_step(msgspec.structs.replace(mark, driver="younger"), PART)
    with pytest.raises(TakenOverError):
        next_step(None, PART)
    with pytest.raises(MarkLostError, match="from other offsets"):
        next_step(msgspec.structs.replace(PART.mark(), input="other"), PART)
    assert decode(PART.mark().encode()) == PART.mark()
    assert decode("someone else's metadata") is None


@pytest.fixture
def target(pipelines: Pipelines) -> Target:
    topic = pipelines.topic(2)
    return Target({"bootstrap.servers": pipelines.bootstrap}, "", topic, f"odradek.{topic}.")


def part(batch: int, driver: str = "d") -> Part:
    return Part(batch=batch, input="i", checkpoint="c", driver=driver)


def rows(*values: int) -> Iterator[tuple[bytes, bytes]]:
    return iter([(str(value).encode(), str(value).encode()) for value in values])


def seen(pipelines: Pipelines, target: Target) -> list[int]:
    """`records` reads with read_committed, librdkafka's default."""
    return sorted(int(message.value() or b"") for message in pipelines.records(target.topic))


def test_a_part_that_is_run_again_writes_nothing(pipelines: Pipelines, target: Target) -> None:
    claim(target, range(1), NEW, "d")
    assert write_part(target, 0, part(0), rows(1, 2)) == 2
    assert write_part(target, 0, part(0), rows(1, 2)) == 0
    assert write_part(target, 0, part(1), rows()) == 0, "an empty part needs no transaction"
    assert write_part(target, 0, part(2), rows(3)) == 1
    assert write_part(target, 0, part(1), rows(9)) == 0, "a task that was paused for two batches"
    assert seen(pipelines, target) == [1, 2, 3]


def test_a_task_that_was_given_up_can_commit_nothing(pipelines: Pipelines, target: Target) -> None:
    """1. A task has written its records, but not committed, when Spark gives it up.
    2. Its successor writes and commits the same part.
    3. The first one wakes up and commits: it is fenced.
    """
    claim(target, range(1), NEW, "d")

    def paused() -> Iterator[tuple[bytes, bytes]]:
        yield from rows(1, 2)
        assert write_part(target, 0, part(0), rows(1, 2)) == 2  # meanwhile

    with pytest.raises(KafkaException) as fenced:
        write_part(target, 0, part(0), paused())
    assert fenced.value.args[0].fatal(), fenced.value
    assert seen(pipelines, target) == [1, 2]
    assert write_part(target, 0, part(1), rows(3)) == 1
    assert seen(pipelines, target) == [1, 2, 3]


def test_the_tasks_of_a_replaced_driver_do_not_disturb_its_successor(
    pipelines: Pipelines, target: Target
) -> None:
    claim(target, range(2), NEW, "old")
    assert write_part(target, 0, part(0, "old"), rows(1)) == 1
    between = Checkpoint(identity="c", last_batch=-1, in_flight=True, marked=True)
    claim(target, range(2), between, "young")

    def during() -> Iterator[tuple[bytes, bytes]]:
        yield from rows(2)
        for number in range(2):  # the old one retries both parts
            with pytest.raises(TakenOverError):
                write_part(target, number, part(0, "old"), rows(1))

    assert write_part(target, 0, part(0, "young"), rows(1)) == 0, "committed by the old driver"
    assert write_part(target, 1, part(0, "young"), during()) == 1
    assert seen(pipelines, target) == [1, 2]


def test_an_aborted_part_is_invisible(pipelines: Pipelines, target: Target) -> None:
    claim(target, range(1), NEW, "d")

    def failing() -> Iterator[tuple[bytes, bytes]]:
        yield from rows(1)
        raise OSError("the executor's disk")

    with pytest.raises(OSError, match="disk"):
        write_part(target, 0, part(0), failing())
    assert write_part(target, 0, part(0), rows(1)) == 1
    with writing(target, 0) as writer:
        assert writer.mark() == part(0).mark()
    assert seen(pipelines, target) == [1]


JSON = {"type": "json", "schema": "id INT NOT NULL"}


def spec(source: str, sink: str, **topic: Any) -> dict[str, Any]:
    return {
        "sources": [{"topics": [source], "format": JSON, "maxOffsetsPerTrigger": 20}],
        "sink": {"topic": {"name": sink, "key": "id", "delivery": "exactlyOnce", **topic}},
    }


def ids(messages: list[Message]) -> list[int]:
    return sorted(json.loads(message.value() or b"")["id"] for message in messages)


@pytest.mark.spark
def test_a_crash_between_the_parts_of_a_batch(
    spark: SparkSession, pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The driver fails when two of the four parts of a batch are committed.
    2. Its successor, which is declared with other writers, completes the batch with four.
    3. Each record is there once, and the order of each key is kept.
    """
    from odradek_spark.jobs.run import JobRun
    from odradek_spark.sinks import batches

    source, sink = pipelines.topic(2), pipelines.topic(3)
    pipelines.produce(source, ({"id": n} for n in range(100)))
    whole = batches.split

    def half(frame: Any, writers: int) -> Any:
        from pyspark.sql import functions as f

        made = whole(frame, writers)
        fails = f.assert_true(f.spark_partition_id() < 2, "crash").isNull()
        return made.where(fails)

    monkeypatch.setattr(batches, "split", half)
    job = JobRun(pipelines.job(**spec(source, sink)))
    assert job.run_in(spark) == 1, job.status
    first = ids(pipelines.records(sink))
    assert 0 < len(first) < 20, "no part was committed, or all"
    monkeypatch.undo()
    job = JobRun(pipelines.job(**spec(source, sink, writers=3)))
    assert job.run_in(spark) == 0, job.status
    assert ids(pipelines.records(sink)) == list(range(100))
    text = (pipelines.directory / "checkpoint" / "odradek-writers.json").read_text()
    assert json.loads(text) == {"writers": 3}
    # Committed parts are not written again. One may have been committed after `first` was read.
    assert 80 < job.status.queries["main"].rows_out <= 100 - len(first)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("more", "sink", "words"),
    [
        ({"steps": [{"sql": "SELECT *, rand() AS r FROM source"}]}, {"writers": 2}, r"rand\(\)"),
        ({"mode": "batch"}, {}, r"spec\.sink\.topic\.delivery: exactlyOnce needs a checkpoint"),
        ({}, {"delivery": "atLeastOnce", "writers": 2}, "no effect without delivery"),
    ],
)
def test_sinks_that_cannot_be_exactly_once_are_refused(
    spark: SparkSession, pipelines: Pipelines, more: Any, sink: Any, words: str
) -> None:
    from odradek_spark.jobs.run import JobRun

    topic = pipelines.topic(1)
    with pytest.raises(SpecError, match=words):
        JobRun(pipelines.job(**{**spec(topic, topic, **sink), **more})).run_in(spark)


@pytest.mark.spark
def test_a_lost_mark_of_a_batch_in_flight_is_refused(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """The group with the marks is deleted, as offsets.retention.minutes would do."""
    from confluent_kafka.admin import AdminClient

    from odradek_spark.jobs.run import JobRun

    source, sink = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, [{"id": 1}])
    document = {**spec(source, sink), "steps": []}
    name = f"lost-{source}"
    assert JobRun(pipelines.job(name, **document)).run_in(spark) == 0
    commits = pipelines.directory / "checkpoint" / "main" / "commits"
    for path in commits.iterdir():
        path.unlink()  # as if the driver had died before it committed the batch
    admin = AdminClient({"bootstrap.servers": pipelines.bootstrap})
    groups = [f"odradek.default.{name}.{number}" for number in range(4)]
    for future in admin.delete_consumer_groups(groups).values():
        future.result(60)
    with pytest.raises(SpecError, match=r"spec\.checkpoint: whether batch 0 .* is not known"):
        JobRun(pipelines.job(name, **document)).run_in(spark)
