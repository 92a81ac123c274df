"""Avro: bodies without a container, written with exactly one schema."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from odradek_schemas.avro_values import MisfitError, from_plain
from odradek_schemas.errors import BadRecordError, LibraryMissingError, RegistryError
from odradek_schemas.registry import Schema


class AvroCodec:
    """One schema, parsed once."""

    def __init__(self, schema: Schema, imported: Mapping[str, Schema], what: str) -> None:
        try:
            import fastavro
        except ImportError:
            raise LibraryMissingError("Avro", "fastavro") from None
        self._fastavro = fastavro
        self._named = named = dict[str, Any]()
        try:
            for text in [*(one.text for one in _in_order(imported)), schema.text]:
                # An error in one of several leaves its names out, and the next one is refused.
                self._schema = fastavro.parse_schema(json.loads(text), named)
        except (ValueError, fastavro.schema.SchemaParseException) as error:
            raise RegistryError(f"{what} is not an Avro schema: {error}") from None

    def decode(self, body: bytes) -> object:
        stream = io.BytesIO(body)
        try:
            value = self._fastavro.schemaless_reader(stream, self._schema, None)
        except Exception as error:  # fastavro raises whatever error the damaged bytes lead to
            why = str(error) or type(error).__name__
            raise BadRecordError(f"the bytes do not fit the Avro schema: {why}") from None
        if left := len(body) - stream.tell():
            raise BadRecordError(f"{left} bytes follow the end of the Avro value")
        return value

    def encode(self, value: object) -> bytes:
        stream = io.BytesIO()
        try:
            self._fastavro.schemaless_writer(stream, self._schema, value, strict=True)
        except Exception as error:  # likewise
            why = str(error) or type(error).__name__
            raise BadRecordError(f"the value does not fit the Avro schema: {why}") from None
        return stream.getvalue()

    def encode_plain(self, value: object) -> bytes:
        """A value as `to_json` writes it."""
        try:
            typed = from_plain(value, self._schema, self._named)
        except MisfitError as error:
            raise BadRecordError(f"the value does not fit the Avro schema: {error}") from None
        return self.encode(typed)


def _in_order(imported: Mapping[str, Schema]) -> list[Schema]:
    """Imported schemas come before the ones that import them."""
    ordered: dict[str, Schema] = {}

    def add(name: str, trail: tuple[str, ...]) -> None:
        if name in ordered or name in trail or name not in imported:
            return
        for reference in imported[name].references:
            add(reference.name, (*trail, name))
        ordered[name] = imported[name]

    for name in imported:
        add(name, ())
    return list(ordered.values())
