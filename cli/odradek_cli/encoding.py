"""`odradek produce --schema-registry URL`: JSON lines as records, by the registry's schemas.

The schema is the newest version of the subject TOPIC-value (or TOPIC-key), as Confluent's clients
name it by default; it has to be registered. The forms of values are those that `odradek consume
--schema-registry` prints. A line that does not fit ends the command, as any bad line does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from odradek_cli.decoding import registry_of
from odradek_cli.errors import CliError
from odradek_cli.records import RecordToWrite

if TYPE_CHECKING:
    from odradek_schemas import Encoder

Encode = Callable[[RecordToWrite, int], RecordToWrite]  # a record, and the number of its line


class Encoded(StrEnum):
    """Which parts of a record are encoded."""

    value = "value"
    key = "key"
    both = "both"


def encoding(topic: str, url: str | None, what: Encoded | None) -> Encode:
    """Records as they are if nothing is to be encoded."""
    if url is None and what is None:
        return lambda record, _: record
    from odradek_schemas import Encoder, SchemaNotFoundError, SchemasError

    client = registry_of(url, "--encode")
    wanted = what or Encoded.value
    parts = ("key", "value") if wanted is Encoded.both else (wanted.value,)
    encoders: dict[str, Encoder] = {}
    for part in parts:
        try:
            encoders[part] = Encoder.for_subject(client, f"{topic}-{part}")
        except SchemaNotFoundError as error:
            raise CliError(f"--schema-registry: {error}: register a schema for it first") from error
        except SchemasError as error:
            raise CliError(f"--schema-registry: {error}") from error

    def encode(record: RecordToWrite, number: int) -> RecordToWrite:
        if "key" in encoders:
            record = replace(record, key=_bytes(encoders["key"], record.key, f"line {number}: key"))
        if "value" in encoders:
            value = _bytes(encoders["value"], record.value, f"line {number}: value")
            record = replace(record, value=value)
        return record

    return encode


def _bytes(encoder: Encoder, text: bytes | None, where: str) -> bytes | None:
    from odradek_schemas import SchemasError

    if text is None:  # a tombstone, or a record without a key
        return None
    try:
        return encoder.encode_plain(json.loads(text))
    except ValueError as error:
        raise CliError(f"{where}: is not JSON: {error}") from error
    except SchemasError as error:
        raise CliError(f"{where}: {error}") from error
