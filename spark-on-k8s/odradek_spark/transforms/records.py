"""Columns as records: key, value and headers for Spark's Kafka sink."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import BinaryType

from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.sinks import TopicSink
from odradek_spark.schemas import first_line
from odradek_spark.transforms.parse import REASON, VALUE

ID_HEADER = "odradek.id"


def to_records(
    at: str,
    frame: DataFrame,
    sink: TopicSink,
    encode: Callable[[Column], Column] | None = None,
) -> DataFrame:
    """`at`: the field of the sink. `encode` makes values of rows instead of `sink.value`, for a
    schema registry.

    Columns with an underscore prefix describe the record's origin and are not written.
    """
    at = f"{at}.topic"
    columns = [_expression(f"{at}.key", frame, sink.key).alias("key")]
    columns.append(_value(at, frame, sink, encode).cast("binary").alias("value"))
    if sink.id is not None:
        identity = _expression(f"{at}.id", frame, sink.id)
        columns.append(f.array(_header(ID_HEADER, identity)).alias("headers"))
    try:
        return frame.select(*columns)
    except PySparkException as error:
        raise SpecError(at, first_line(error)) from None


def dead_letters(bad: DataFrame, pipeline: str) -> DataFrame:
    """The original record, with the error and its origin in the headers."""
    known = {"odradek.pipeline": f.lit(pipeline), "odradek.error": f.col(REASON)}
    for header, column in (("topic", "_topic"), ("partition", "_partition"),
                           ("offset", "_offset"), ("file", "_file")):  # fmt: skip
        if column in bad.columns:
            known[f"odradek.{header}"] = f.col(column)
    headers = f.array(*(_header(n, c.cast("string").cast("binary")) for n, c in known.items()))
    if "_headers" in bad.columns:
        own = "array<struct<key:string,value:binary>>"
        headers = f.concat(f.coalesce(f.col("_headers"), f.array().cast(own)), headers)
    key = f.col("__key") if "__key" in bad.columns else f.lit(None)
    return bad.select(
        key.cast("binary").alias("key"),
        f.col(VALUE).cast("binary").alias("value"),
        headers.alias("headers"),
    )


def public(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if not name.startswith("_")]


def _value(
    at: str, frame: DataFrame, sink: TopicSink, encode: Callable[[Column], Column] | None
) -> Column:
    if sink.value == "raw":
        if "value" not in frame.columns:
            message = f"raw needs a column named value; there is only {', '.join(frame.columns)}"
            raise SpecError(f"{at}.value", message)
        return f.col("value")
    names = public(frame)
    if not names:
        raise SpecError(
            "spec.steps", "there is no column to write; names that start with _ are not written"
        )
    row = f.struct(*(f.col(f"`{name}`") for name in names))
    if encode is not None:
        return encode(row)
    if sink.value == "json":
        return f.to_json(row)
    if sink.value == "csv":
        return f.to_csv(row)
    assert sink.schema is not None
    return to_avro(row, sink.schema)


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.alias("value"))


def _expression(at: str, frame: DataFrame, text: str | None) -> Column:
    """As bytes: binary columns unchanged, all others cast to string."""
    if text is None:
        return f.lit(None).cast("binary")
    try:
        found = f.expr(text)
        binary = isinstance(frame.select(found).schema[0].dataType, BinaryType)
    except PySparkException as error:
        raise SpecError(at, first_line(error)) from None
    return found if binary else found.cast("string").cast("binary")
