"""Parses values into columns; a record that cannot be parsed keeps its bytes and gets a reason.

Input: `value` (binary or string) and other columns. Output: the schema's columns, the other columns
with an underscore prefix, and two columns by which `good` and `bad` select:

    __reason   null, or why the record cannot be parsed: "page is missing"
    __value    the original value
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.sources import Format
from odradek_spark.schemas import CORRUPT, columns, first_line, required, with_corrupt

REASON, VALUE = "__reason", "__value"
HIDDEN = "__"  # prefix of internal columns, which are never written
# Of records that were decoded with a schema registry: their bytes, and why there is no JSON.
ORIGINAL, UNDECODED = "__original", "__undecoded"
PARSED = ("json", "csv", "avro", "protobuf")


def parse(at: str, records: DataFrame, form: Format) -> DataFrame:
    """Parses values by their format; `at` is the field of the spec with the format."""
    names = [name for name in records.columns if name not in ("value", ORIGINAL, UNDECODED)]
    others = [f.col(name).alias(f"_{name}") for name in names]
    if form.type == "text":
        return records.select(f.col("value").cast("string").alias("value"), *others)
    assert form.type in PARSED, form.type
    assert form.schema is not None
    options = {name: str(value) for name, value in form.options.items()}
    text = f.col("value").cast("string")
    if form.type == "avro" and form.registry is None:
        parsed, schema = _avro(at, records, form.schema, options)
    else:
        schema = columns(f"{at}.schema", form.schema)
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        header = options.pop("header", "false").lower() == "true"
        if form.type == "json" or form.registry is not None:
            parsed = f.from_json(text, with_corrupt(schema), options)
        else:
            if header:  # drop header lines: the schema has the names already
                named = options.get("sep", ",").join(schema.names)
                records = records.where(f.trim(text) != named)
            parsed = f.from_csv(text, _ddl(with_corrupt(schema)), options)
    if form.registry is None:
        made = records.select(parsed.alias("__parsed"), f.col("value").alias(VALUE), *others)
        reason = _reason(form.type, schema)
    else:
        original = f.col(ORIGINAL).alias(VALUE)
        made = records.select(parsed.alias("__parsed"), original, *others, UNDECODED)
        reason = _reason(form.type, schema, decoded=True)
    fields = [f.col(f"__parsed.`{name}`").alias(name) for name in schema.names]
    kept = [f.col(f"_{name}") for name in names]
    return made.select(*fields, *kept, f.col(VALUE), reason.alias(REASON))


def bad(parsed: DataFrame) -> DataFrame:
    return parsed.where(f.col(REASON).isNotNull())


def good(parsed: DataFrame) -> DataFrame:
    return _public(parsed.where(f.col(REASON).isNull()))


def good_or_fail(parsed: DataFrame, of: str = "") -> DataFrame:
    """The first record that cannot be parsed fails the query; the error names it, after `of`."""
    where = [f.lit("a record cannot be parsed: "), f.col(REASON)]
    if "_offset" in parsed.columns:
        where = [f.col("_topic"), f.lit("-"), f.col("_partition").cast("string"),
                 f.lit(" offset "), f.col("_offset").cast("string"),
                 f.lit(" cannot be parsed: "), f.col(REASON)]  # fmt: skip
    elif "_file" in parsed.columns:
        where = [f.lit("a line of "), f.col("_file"), f.lit(" cannot be parsed: "), f.col(REASON)]
    fail = f.raise_error(f.concat(f.lit(f"ODRADEK {of}"), *where)).cast("boolean")
    passes = f.when(f.col(REASON).isNull(), f.lit(True)).otherwise(fail)
    return _public(parsed.where(passes))


def _public(parsed: DataFrame) -> DataFrame:
    return parsed.select(*(name for name in parsed.columns if not name.startswith(HIDDEN)))


def _reason(kind: str, schema: StructType, *, decoded: bool = False) -> Column:
    """The first problem; null if there is none."""
    reason = f.when(f.col(VALUE).isNull(), f.lit("the value is null"))
    if decoded:
        reason = reason.when(f.col(UNDECODED).isNotNull(), f.col(UNDECODED))
    if kind == "avro" and not decoded:
        # Spark turns invalid Avro into a row of nulls, like a record whose fields are all null.
        empty = f.col("__parsed").isNull()
        nulls = [f.col(f"__parsed.`{name}`").isNull() for name in schema.names]
        broken = empty | reduce(and_, nulls)
        reason = reason.when(broken, f.lit("the value is not Avro of the schema"))
    else:
        broken = f.col("__parsed").isNull() | f.col(f"__parsed.{CORRUPT}").isNotNull()
        what = "does not have the columns" if decoded else f"is not {kind.upper()}"
        reason = reason.when(broken, f.lit(f"the value {what} of the schema"))
    for name in required(schema):
        reason = reason.when(f.col(f"__parsed.`{name}`").isNull(), f.lit(f"{name} is missing"))
    return reason


def _avro(
    at: str, records: DataFrame, schema: str, options: dict[str, str]
) -> tuple[Column, StructType]:
    parsed = from_avro(f.col("value"), schema, {**options, "mode": "PERMISSIVE"})
    try:
        found = records.select(parsed.alias("parsed")).schema["parsed"].dataType
    except Exception as error:
        raise SpecError(f"{at}.schema", first_line(error)) from None
    if not isinstance(found, StructType):
        raise SpecError(f"{at}.schema", "the Avro schema must be a record")
    return parsed, found


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
