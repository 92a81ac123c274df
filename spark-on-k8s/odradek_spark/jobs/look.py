"""Looks at a job without running it: `analyse` and `preview`, for `odradek pipeline`.

`analyse` lets Spark resolve all names, types and SQL, and checks what it refuses when a query
starts: output mode, watermarks, the checkpoint's owner. It reads no record and writes nothing.
`preview` reads a few records of each partition and shows the rows of each source and step.
"""

from __future__ import annotations

from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.outputs import Output
from odradek_api.pipeline.rules import step_name
from odradek_api.pipeline.sources import Source
from odradek_api.pipeline.status import FlowStatus
from odradek_spark.config import librdkafka_config
from odradek_spark.jobs.build import Partitions, build
from odradek_spark.jobs.guard import check_guard
from odradek_spark.jobs.samples import Outcome
from odradek_spark.schemas import first_line
from odradek_spark.session.files import Store
from odradek_spark.sinks import write
from odradek_spark.sinks.batches import writers_of
from odradek_spark.sources.metadata import TIMEOUT_S
from odradek_spark.transforms.records import public

TEXT_MAX = 60  # characters of a value in a preview


class View(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    columns: dict[str, str]  # name → type
    rows: list[list[str]] = []


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    views: list[View] = []
    flows: list[FlowStatus] = []  # of sdp
    tests: list[Outcome] = []
    field: str = ""  # the field of the spec that is wrong
    message: str = ""


def analyse(spark: SparkSession, job: Job, partitions: Partitions) -> Look:
    """Raises SpecError with the field that is wrong."""
    for output, frame in build(spark, job, partitions).frames:
        rows = write.written(output, frame)
        if job.spec.mode != "batch":
            _check_streaming(spark, job, output, rows)
            if write.exactly_once(output):
                writers_of(job, output, frame)
    if job.spec.mode != "batch":
        check_guard(Store(spark), job)
    return Look(views=[_view(spark.table(name), name) for name in names(job)])


def preview(spark: SparkSession, job: Job, partitions: Partitions, rows: int) -> Look:
    """A few records of each partition, from where the source begins to read."""
    sources = [
        _first_records(job, number, source, partitions[number], rows)
        for number, source in enumerate(job.spec.sources)
    ]
    spec = msgspec.structs.replace(job.spec, mode="batch", sources=sources, dead_letter=None)
    job = msgspec.structs.replace(job, spec=spec)
    build(spark, job, partitions)
    return Look(views=[_view(spark.table(name), name, rows) for name in names(job)])


def names(job: Job) -> list[str]:
    """Of the views: sources, lookups and steps."""
    steps = [step_name(number, step) for number, step in enumerate(job.spec.steps)]
    lookups = [lookup.name for lookup in job.spec.lookups]
    return [source.name for source in job.spec.sources] + lookups + steps


def _check_streaming(spark: SparkSession, job: Job, output: Output, frame: DataFrame) -> None:
    """Spark's refusal when a query starts, in the same words."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = getattr(modes, output.sink.output_mode.title())
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode())
    except PySparkException as error:
        text = first_line(error) + write.advice(output, str(error))
        raise SpecError(write.blame(job, output), text) from None


def _first_records(
    job: Job, number: int, source: Source, partitions: dict[str, int], rows: int
) -> Source:
    """The source, limited to `rows` records of each partition."""
    if not source.kafka_source:
        return source
    config = librdkafka_config(job, f"sources[{number}]", source.cluster, source.kafka, source.user)
    consumer = Consumer({**config, "group.id": "odradek-preview", "enable.auto.commit": False})
    begin: dict[str, dict[str, int]] = {}
    until: dict[str, dict[str, int]] = {}
    try:
        for topic, count in partitions.items():
            for partition in range(count):
                place = TopicPartition(topic, partition)
                low, high = consumer.get_watermark_offsets(place, TIMEOUT_S)
                first = min(max(low, _given(source, topic, partition, low)), high)
                if source.from_ == "latest":
                    first = max(low, high - rows)
                begin.setdefault(topic, {})[str(partition)] = first
                until.setdefault(topic, {})[str(partition)] = min(first + rows, high)
    except KafkaException as error:
        said = error.args[0].str() if error.args else str(error)
        raise SpecError(f"spec.sources[{number}].topics", said) from None
    finally:
        consumer.close()
    return msgspec.structs.replace(
        source, from_="offsets", offsets=begin, until=until, timestamp=None
    )


def _given(source: Source, topic: str, partition: int, low: int) -> int:
    if source.from_ != "offsets":
        return low
    return int(source.offsets.get(topic, {}).get(str(partition), low))


def _view(frame: DataFrame, name: str, rows: int = 0) -> View:
    shown = public(frame) or list(frame.columns)
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    columns = {column: types[column] for column in shown}
    if not rows:
        return View(name=name, columns=columns)
    try:
        found = frame.select(*(f"`{column}`" for column in shown)).limit(rows).collect()
    except PySparkException as error:
        raise SpecError("", f"{name}: {first_line(error)}") from None
    return View(name=name, columns=columns, rows=[[_text(value) for value in r] for r in found])


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="replace")
    text = "" if value is None else str(value)
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
