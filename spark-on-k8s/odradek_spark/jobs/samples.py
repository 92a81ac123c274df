"""Runs the steps of a job on the rows of its tests (spec.tests), without Kafka, and compares.

The rows of a source are JSON objects with the columns that the steps see: those of its schema, and
`_key`, `_offset` and so on. Rows without `_offset` are numbered. Steps run as in a batch: windows
are complete, and dedup has no watermark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.lookups import Lookup
from odradek_api.pipeline.samples import SampleTest
from odradek_api.pipeline.sources import Source
from odradek_spark.schemas import columns
from odradek_spark.transforms.records import public
from odradek_spark.transforms.steps import run_steps, watermark_and_dedup

KAFKA = "_key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
RAW = ("key STRING, value STRING, topic STRING, partition INT, offset BIGINT, "
       "timestamp TIMESTAMP")  # fmt: skip
FILE = "_file STRING, _modified TIMESTAMP"
NUMBERED = ("_offset", "offset")  # columns that rows without them get
Rows = Sequence[Mapping[str, Any]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    missing: list[str] = []  # expected rows that are not in the result, as JSON
    unexpected: list[str] = []  # and the other way round

    @property
    def passed(self) -> bool:
        return not (self.missing or self.unexpected)


def run_tests(spark: SparkSession, job: Job) -> list[Outcome]:
    return [
        _compare(test, _result(spark, job, number, test), spark, number)
        for number, test in enumerate(job.spec.tests)
    ]


def _result(spark: SparkSession, job: Job, number: int, test: SampleTest) -> DataFrame:
    views = {}
    for n, source in enumerate(job.spec.sources):
        at = f"spec.tests[{number}].rows.{source.name}"
        rows: Rows = test.rows.get(source.name, [])
        frame = _frame(spark, at, rows, _schema(n, source))
        if source.format.type == "raw" and source.kafka_source:  # as Kafka has them
            for name in ("key", "value"):
                frame = frame.withColumn(name, f.col(name).cast("binary"))
        views[source.name] = watermark_and_dedup(
            f"spec.sources[{n}]", frame, source.watermark, source.dedup
        )
    for n, lookup in enumerate(job.spec.lookups):
        at = f"spec.tests[{number}].rows.{lookup.name}"
        schema = _lookup_schema(n, lookup)
        views[lookup.name] = _frame(spark, at, test.rows.get(lookup.name, []), schema)
    return run_steps(spark, job.spec.steps, views, Path(job.directory))


def _schema(number: int, source: Source) -> StructType:
    """The columns that the steps see."""
    if source.rate is not None:
        return StructType.fromDDL("timestamp TIMESTAMP, value BIGINT")
    if source.kafka_source and source.format.type == "raw":
        return StructType.fromDDL(RAW)
    at = f"spec.sources[{number}]"
    text = "value STRING" if source.format.type == "text" else source.format.schema
    if source.table is not None or text is None or text.lstrip().startswith("{"):
        raise SpecError(at, "tests need its columns: a table or an Avro schema has none here")
    own = FILE if source.files is not None else KAFKA
    if source.tombstones:
        own += ", _deleted BOOLEAN"
    return StructType([*columns(f"{at}.format.schema", text), *StructType.fromDDL(own)])


def _lookup_schema(number: int, lookup: Lookup) -> StructType:
    if lookup.topic is None:
        message = "tests need its columns, and only a topic's are in the manifest"
        raise SpecError(f"spec.lookups[{number}]", message)
    return _schema(number, Source(topics=[lookup.topic.name], format=lookup.topic.format))


def _frame(spark: SparkSession, at: str, rows: Rows, schema: StructType) -> DataFrame:
    """Rows as JSON reads them, so that times and numbers are written as in records."""
    made = []
    for number, row in enumerate(rows):
        unknown = sorted(row.keys() - set(schema.names))
        if unknown:
            known = ", ".join(schema.names)
            raise SpecError(f"{at}[{number}]", f"there is no column {unknown[0]}, only {known}")
        numbered = {name: number for name in NUMBERED if name in schema.names}
        made.append((json.dumps({**numbered, **row}),))
    text = spark.createDataFrame(made, "row STRING")
    return text.select(f.from_json("row", schema, {"mode": "FAILFAST"}).alias("row")).select(
        "row.*"
    )


def _compare(test: SampleTest, result: DataFrame, spark: SparkSession, number: int) -> Outcome:
    at = f"spec.tests[{number}].expect"
    named = {name for row in test.expect for name in row}
    seen = [name for name in result.columns if name in named] or public(result)
    wanted = StructType([field for field in result.schema.fields if field.name in seen])
    unknown = sorted(named - set(result.columns))
    if unknown:
        message = f"the last step has no column {unknown[0]}, only {', '.join(result.columns)}"
        raise SpecError(at, message)
    there = _counted(result.select(*(f"`{name}`" for name in seen)))
    expected = _counted(_frame(spark, at, test.expect, wanted).select(*seen))
    return Outcome(
        name=test.name,
        missing=sorted((expected - there).elements()),
        unexpected=sorted((there - expected).elements()),
    )


def _counted(frame: DataFrame) -> Counter[str]:
    options = {"ignoreNullFields": "false"}
    return Counter(row[0] for row in frame.select(f.to_json(f.struct("*"), options)).collect())
