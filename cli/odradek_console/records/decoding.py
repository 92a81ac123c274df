"""Keys and values that were written with a schema registry, as JSON.

    schemas = Schemas.of("https://registry:8081", {"schema.registry.basic.auth.user.info": "…"})
    schemas.decoded(b"\\0\\0\\0\\0\\x01…")        # b'{"page":"/"}'

Decoding comes before masks and filters, so both see the fields. Bytes without a schema id, of an
unknown schema, or that do not fit theirs stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_console.records.filtering import FilterError
from odradek_protocol.records.records import Record
from odradek_schemas import (
    BadRecordError,
    Client,
    Decoder,
    Registry,
    SchemaNotFoundError,
    SchemasError,
    SettingsError,
    to_json,
)

PREFIX = "schema.registry."
MAGIC = b"\0"


class SchemaSettingsError(Exception):
    """A setting of the registry that cannot be used; a sentence without its secrets."""


class RegistryAwayError(FilterError):
    """The registry does not answer, or its schema cannot be used; it ends the search."""


class Schemas:
    """Safe for threads; all users of the console share what the registry answered."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @classmethod
    def of(cls, url: str, settings: Mapping[str, str]) -> Schemas:
        own = {name: value for name, value in settings.items() if name.startswith(PREFIX)}
        try:
            return cls(Decoder(Client(Registry.of(url, own))))
        except SettingsError as error:
            raise SchemaSettingsError(str(error)) from None

    def record(self, record: Record) -> Record:
        """Raises RegistryAwayError."""
        return record._replace(key=self.decoded(record.key), value=self.decoded(record.value))

    def decoded(self, data: bytes | None) -> bytes | None:
        if data is None or not data.startswith(MAGIC):
            return data
        try:
            return to_json(self._decoder.decode(data).value).encode()
        except (BadRecordError, SchemaNotFoundError):
            return data
        except SchemasError as error:
            words = f"the schema registry: {error}; the formats text and hex do without it"
            raise RegistryAwayError(words) from None
