"""JSON with a JSON schema: bodies are JSON texts; values that are written are validated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek_schemas.errors import BadRecordError, LibraryMissingError, RegistryError
from odradek_schemas.json_values import to_json
from odradek_schemas.registry import Schema


class JsonCodec:
    """One schema. Reading needs no library: as Confluent's, it does not validate."""

    def __init__(self, schema: Schema, imported: Mapping[str, Schema], what: str) -> None:
        self._what = what
        try:
            self._schema = json.loads(schema.text)
            self._imported = {name: json.loads(one.text) for name, one in imported.items()}
        except ValueError as error:
            raise RegistryError(f"{what} is not a JSON schema: {error}") from None
        self._validator: Any = None

    def decode(self, body: bytes) -> object:
        try:
            return json.loads(body)
        except ValueError as error:
            raise BadRecordError(f"the bytes are not JSON: {error}") from None

    def encode(self, value: object) -> bytes:
        validator = self._validator or self._make_validator()
        text = to_json(value)
        wrong = next(iter(validator.iter_errors(json.loads(text))), None)
        if wrong is not None:
            where = wrong.json_path
            raise BadRecordError(
                f"the value does not fit the JSON schema at {where}: {wrong.message}"
            )
        return text.encode()

    def _make_validator(self) -> Any:
        try:
            import jsonschema
            from referencing import Registry as Known
            from referencing.jsonschema import DRAFT202012
        except ImportError:
            raise LibraryMissingError("JSON schema", "jsonschema") from None
        kind = jsonschema.validators.validator_for(self._schema, jsonschema.Draft202012Validator)
        try:
            kind.check_schema(self._schema)
        except jsonschema.SchemaError as error:
            raise RegistryError(f"{self._what} is not a JSON schema: {error.message}") from None
        known: Any = Known().with_contents(
            self._imported.items(), default_specification=DRAFT202012
        )
        self._validator = kind(self._schema, registry=known)
        return self._validator
