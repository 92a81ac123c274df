"""Schemas as people write them: columns in SQL's words, or Avro's JSON. Pure, but for the parser.

`page STRING NOT NULL, at TIMESTAMP`: a record without `page` does not parse. (Spark itself reads
every column as one that may be null; the promise is kept in transforms/parse.py.)
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructType

from odradek_api.pipeline.job import SpecError

CORRUPT = "__corrupt"  # what Spark puts the text of a record into that does not parse


def columns(at: str, text: str) -> StructType:
    """ "page STRING, at TIMESTAMP" → a StructType; `at` is the field that has the text."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise SpecError(at, first_line(error)) from None
    if len(set(found.names)) != len(found.names):
        raise SpecError(at, "a column is named twice")
    return found


def with_corrupt(schema: StructType) -> StructType:
    return StructType([*schema.fields]).add(CORRUPT, StringType())


def required(schema: StructType) -> list[str]:
    return [field.name for field in schema.fields if not field.nullable]


def first_line(error: BaseException) -> str:
    """What a person reads of an error of Spark's: "[PARSE_SYNTAX_ERROR] Syntax error at …"."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip()
    return type(error).__name__
