"""Sources as DataFrames, streaming or batch. They still contain records that cannot be parsed.

In addition to the columns of the format, topics have _key, _topic, _partition, _offset, _timestamp
and _headers, files have _file and _modified. `raw` topics have Kafka's own column names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.sources import Source, Table
from odradek_spark.config import spark_kafka_options
from odradek_spark.schemas import columns, first_line
from odradek_spark.sources.options import file_options, kafka_options
from odradek_spark.sources.registered import decoded
from odradek_spark.transforms.parse import PARSED, REASON, VALUE, parse


def read(
    spark: SparkSession,
    job: Job,
    number: int,
    partitions: Mapping[str, int],
    limit: int | None = None,
) -> DataFrame:
    """Source `number` of the job; with __reason and __value if its format can fail to parse."""
    source = job.spec.sources[number]
    at = f"sources[{number}]"
    batch = job.spec.mode == "batch"
    reader: Any = spark.read if batch else spark.readStream
    if source.rate is not None:
        options = {"rowsPerSecond": str(source.rate.rows_per_second)}
        return reader.format("rate").options(**options).load()
    if source.table is not None:
        return _table(reader, job, at, source.table)
    if source.files is not None:
        return _files(reader, job, at, source)
    options = spark_kafka_options(job, at, source.cluster, source.kafka, source.user)
    options |= kafka_options(source, partitions, batch=batch, limit=limit)
    records = reader.format("kafka").options(**options).load().drop("timestampType")
    if source.format.type == "raw":
        return records
    if source.format.registry is not None:
        records = decoded(f"spec.{at}.format", records, source.format.registry)
    parsed = parse(f"spec.{at}.format", records, source.format)
    if source.format.type in PARSED:  # a string for SQL, the bytes for dead letters
        parsed = parsed.withColumn("__key", f.col("_key"))
    if source.tombstones:
        deleted = f.col(VALUE).isNull()
        parsed = parsed.withColumn("_deleted", deleted)
        parsed = parsed.withColumn(REASON, f.when(~deleted, f.col(REASON)))
    return parsed.withColumn("_key", f.col("_key").cast("string"))


def _table(reader: Any, job: Job, at: str, table: Table) -> DataFrame:
    options = {"readChangeFeed": "true"} if table.changes else {}
    try:
        return reader.format("delta").options(**options).load(job.path(table.path))
    except PySparkException as error:
        raise SpecError(f"spec.{at}.table", first_line(error)) from None


def _files(reader: Any, job: Job, at: str, source: Source) -> DataFrame:
    assert source.files is not None
    path = job.path(source.files.path)
    if "://" not in path and not os.path.isdir(path):
        raise SpecError(f"spec.{at}.files.path", f"directory {path} does not exist")
    options = file_options(source.files)
    origin = {
        "file": f.col("_metadata.file_path"),
        "modified": f.col("_metadata.file_modification_time"),
    }
    try:
        if source.format.type == "parquet":
            assert source.format.schema is not None
            schema = columns(f"spec.{at}.format.schema", source.format.schema)
            made = reader.format("parquet").schema(schema).options(**options).load(path)
            names = [f.col(f"`{name}`") for name in schema.names]
            return made.select(*names, *(c.alias(f"_{n}") for n, c in origin.items()))
        lines = reader.format("text").options(**options).load(path)
        lines = lines.select("value", *(c.alias(name) for name, c in origin.items()))
    except PySparkException as error:
        raise SpecError(f"spec.{at}.files", first_line(error)) from None
    return parse(f"spec.{at}.format", lines, source.format)
