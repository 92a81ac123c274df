"""Values to records and back: finds the schema, and keeps one codec per schema.

Reads always with the schema that a record names, so that records of all versions can be read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Self

from odradek_schemas.avro import AvroCodec
from odradek_schemas.errors import BadRecordError
from odradek_schemas.json_schema import JsonCodec
from odradek_schemas.protobuf import ProtobufCodec
from odradek_schemas.registry import Kind, Schema
from odradek_schemas.wire import frame, unframe

if TYPE_CHECKING:
    from odradek_schemas.client import Client

CODECS_MAX = 1_000  # schemas in use by one process

Codec = AvroCodec | JsonCodec | ProtobufCodec


class Decoded(NamedTuple):
    """A record's value, and the schema that it was written with."""

    id: int
    kind: Kind
    value: object


class Decoder:
    """Reads records of any subject; may be used by several threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._codecs: OrderedDict[int, tuple[Kind, Codec]] = OrderedDict()
        self._lock = threading.Lock()

    def decode(self, value: bytes) -> Decoded:
        """BadRecordError: the bytes do not fit. Other errors: the registry, or its schema."""
        schema_id, body = unframe(value)
        found = self._codecs.get(schema_id)
        if found is None:
            schema = self._client.by_id(schema_id)
            found = schema.kind, codec(self._client, schema, f"schema id {schema_id}")
            with self._lock:
                self._codecs[schema_id] = found
                while len(self._codecs) > CODECS_MAX:
                    self._codecs.popitem(last=False)
        kind, own = found
        try:
            return Decoded(schema_id, kind, own.decode(body))
        except BadRecordError as error:
            raise BadRecordError(f"schema id {schema_id}: {error}") from None


class Encoder:
    """Writes records with one schema."""

    def __init__(
        self, schema_id: int, kind: Kind, own: Codec, message_name: str | None = None
    ) -> None:
        self.schema_id = schema_id
        self.kind = kind
        self._codec = own
        self._message_name = message_name

    @classmethod
    def for_subject(
        cls,
        client: Client,
        subject: str,
        schema: Schema | None = None,
        *,
        message_name: str | None = None,
    ) -> Self:
        """With the subject's newest version; or `schema`, which is registered if it is not yet."""
        what = f"subject {subject}"
        if schema is None:
            newest = client.latest(subject)
            schema_id, schema = newest.id, newest.schema
        else:
            schema_id = client.register(subject, schema)
        return cls(schema_id, schema.kind, codec(client, schema, what), message_name)

    @classmethod
    def for_version(cls, client: Client, subject: str, version: int) -> Self:
        known = client.version(subject, version)
        what = f"version {version} of subject {subject}"
        return cls(known.id, known.schema.kind, codec(client, known.schema, what))

    def encode(self, value: object) -> bytes:
        if isinstance(self._codec, ProtobufCodec):
            return frame(self.schema_id, self._codec.encode(value, self._message_name))
        return frame(self.schema_id, self._codec.encode(value))

    def encode_plain(self, value: object) -> bytes:
        """A value out of JSON, in the forms that `to_json` writes."""
        if isinstance(self._codec, AvroCodec):
            return frame(self.schema_id, self._codec.encode_plain(value))
        return self.encode(value)  # their values are JSON


def codec(client: Client, schema: Schema, what: str) -> Codec:
    """`what` names the schema in errors."""
    kinds: dict[Kind, type[Codec]] = {
        "AVRO": AvroCodec,
        "JSON": JsonCodec,
        "PROTOBUF": ProtobufCodec,
    }
    where = f"{what} of {client.registry.url}"
    return kinds[schema.kind](schema, client.with_references(schema), where)
