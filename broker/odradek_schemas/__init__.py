"""Schemas of records: Confluent's wire format, and a client of the REST API that goes with it.

    client = Client(Registry("https://registry:8081", user="reader", password=…, ca=Path("ca.pem")))
    Decoder(client).decode(value)             # Decoded(id=7, kind="AVRO", value={"page": "/"})
    Encoder.for_subject(client, "visits-value").encode({"page": "/"})      # bytes, with the header

Any registry with that API will do (Confluent's, Karapace, Apicurio at /apis/ccompat/v7). `wire`
has the header, `registry` the settings and types, `client` the requests, `avro`, `protobuf` and
`json_schema` one format each. fastavro, protobuf and jsonschema are imported by the first record
that needs them (the extra `schemas`).
"""

from odradek_schemas.client import Client
from odradek_schemas.codec import Decoded, Decoder, Encoder
from odradek_schemas.errors import (
    BadRecordError,
    LibraryMissingError,
    RegistryError,
    SchemaNotFoundError,
    SchemasError,
    SettingsError,
)
from odradek_schemas.json_values import to_json
from odradek_schemas.registry import Reference, Registered, Registry, Schema
from odradek_schemas.wire import Framed, frame, unframe

__all__ = [
    "BadRecordError",
    "Client",
    "Decoded",
    "Decoder",
    "Encoder",
    "Framed",
    "LibraryMissingError",
    "Reference",
    "Registered",
    "Registry",
    "RegistryError",
    "Schema",
    "SchemaNotFoundError",
    "SchemasError",
    "SettingsError",
    "frame",
    "to_json",
    "unframe",
]
