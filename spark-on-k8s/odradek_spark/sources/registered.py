"""Records whose schemas are in a registry: decoded to JSON, from which `parse` takes the columns.

Runs in the Python workers of the executors, which ask the registry for each schema once. So records
of all versions are read, also those that are registered while the pipeline runs. A record that does
not fit its schema, or names none, is one that cannot be parsed; a registry that does not answer
fails the task, which Spark repeats, and then the query: no record is skipped because of it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.schema_registry import SchemaRegistry
from odradek_schemas import BadRecordError, SchemaNotFoundError, SchemasError, to_json
from odradek_spark import registries
from odradek_spark.registries import Settings, SourceRegistryError
from odradek_spark.transforms.parse import ORIGINAL, UNDECODED

RESULT = StructType().add("json", StringType()).add("why", StringType())


def decoded(at: str, records: DataFrame, registry: SchemaRegistry) -> DataFrame:
    """`value` becomes JSON; the columns ORIGINAL and UNDECODED have its bytes and what is wrong."""
    settings = Settings.of(registry)
    try:
        registries.client(settings)
    except SchemasError as error:
        raise SpecError(f"{at}.registry.config", str(error)) from None

    read = f.udf(lambda value: as_json(settings, value), RESULT)
    others = [name for name in records.columns if name != "value"]
    # Nondeterministic: otherwise the optimizer may call it once for each column that uses it.
    made = records.withColumn("__read", read.asNondeterministic()("value"))
    return made.select(
        f.col("__read.json").alias("value"),
        *others,
        f.col("value").alias(ORIGINAL),
        f.col("__read.why").alias(UNDECODED),
    )


def as_json(settings: Settings, value: bytes | bytearray | None) -> tuple[str | None, str | None]:
    """The value as JSON, or why it is none."""
    if value is None:
        return None, None
    try:
        return to_json(registries.decoder(settings).decode(bytes(value)).value), None
    except (BadRecordError, SchemaNotFoundError) as error:
        return None, str(error)
    except SchemasError as error:
        raise SourceRegistryError(str(error)) from None
