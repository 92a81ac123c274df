"""Schemas of a spec: columns in SQL syntax, or an Avro schema as JSON.

`page STRING NOT NULL, at TIMESTAMP`: a record without `page` is refused. (Spark itself treats every
column as nullable; transforms/parse.py checks NOT NULL.)
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructType

from odradek_api.pipeline.job import SpecError

CORRUPT = "__corrupt"  # column with the text of a record that cannot be parsed


def columns(at: str, text: str) -> StructType:
    """ "page STRING, at TIMESTAMP" → a StructType; `at` is the field of the spec."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise SpecError(at, first_line(error)) from None
    if len(set(found.names)) != len(found.names):
        raise SpecError(at, "a column name is used twice")
    return found


def with_corrupt(schema: StructType) -> StructType:
    return StructType([*schema.fields]).add(CORRUPT, StringType())


def required(schema: StructType) -> list[str]:
    return [field.name for field in schema.fields if not field.nullable]


def first_line(error: BaseException) -> str:
    """The first line of one of Spark's errors: "[PARSE_SYNTAX_ERROR] Syntax error at …"."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip()
    return type(error).__name__
