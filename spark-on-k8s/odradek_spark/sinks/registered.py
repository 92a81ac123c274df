"""Values with the header of a schema registry: the newest schema of a subject, when the job starts.

Avro and JSON are written by Spark itself, behind the five bytes of the header. Protobuf is written
by Python workers. JSON is not validated against its schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import BinaryType

from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.sinks import TopicSink
from odradek_schemas import SchemaNotFoundError, SchemasError, frame
from odradek_schemas.registry import Registered
from odradek_spark import registries
from odradek_spark.registries import Settings, SinkRegistryError

Encode = Callable[[Column], Column]  # a struct of the row's columns → bytes


def encoding(at: str, sink: TopicSink) -> Encode | None:
    """None: without a registry. `at`: the field of the sink."""
    if sink.registry is None:
        return None
    settings = Settings.of(sink.registry)
    at = f"{at}.topic"
    subject = sink.subject or f"{sink.name}-value"
    try:
        newest = registries.client(settings).latest(subject)
    except SchemaNotFoundError as error:
        raise SpecError(f"{at}.subject", f"{error}; register the schema first") from None
    except SchemasError as error:
        raise SpecError(f"{at}.registry", str(error)) from None
    if newest.schema.kind != sink.value.upper():
        message = f"subject {subject} has the type {newest.schema.kind}"
        raise SpecError(f"{at}.value", message)
    header = f.lit(bytearray(frame(newest.id, b"")))
    if sink.value == "json":
        return lambda row: f.concat(header, f.to_json(row).cast("binary"))
    if sink.value == "protobuf":
        return _protobuf(settings, newest)
    if newest.schema.references:
        raise SpecError(f"{at}.subject", f"the Avro schema of {subject} imports others, which "
                        "Spark cannot write")  # fmt: skip
    text = newest.schema.text
    return lambda row: f.concat(header, to_avro(row, text))


def _protobuf(settings: Settings, newest: Registered) -> Encode:
    subject, version = newest.subject, newest.version

    def written(text: str) -> bytes:
        try:
            return registries.encoder(settings, subject, version).encode(json.loads(text))
        except SchemasError as error:
            raise SinkRegistryError(str(error)) from None

    write = f.udf(written, BinaryType())
    return lambda row: write(f.to_json(row))
