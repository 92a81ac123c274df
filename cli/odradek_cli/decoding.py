"""`odradek consume --schema-registry URL`: keys and values as JSON, by the registry's schemas.

The login is in the client's settings under Confluent's names, never on the command line:

    schema.registry.url=https://registry:8081           # for --decode without --schema-registry
    schema.registry.basic.auth.user.info=USER:PASSWORD  # or schema.registry.bearer.auth.token
    schema.registry.ssl.ca.location=ca.pem

A record that does not fit its schema, or has none, is printed as it is, with a line on stderr. A
registry that does not answer ends the command.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odradek_cli import session
from odradek_cli.errors import CliError, UsageError

if TYPE_CHECKING:
    from odradek_cli.records import Message, Show
    from odradek_schemas import Client, Decoder

URL, PREFIX = "schema.registry.url", "schema.registry."


class Decode(StrEnum):
    """Which parts of a record are decoded."""

    value = "value"
    key = "key"
    both = "both"


class DecodedMessage:
    """A message whose key, value or both are JSON texts."""

    def __init__(self, message: Message, **parts: bytes | None) -> None:
        self._message = message
        self._parts = parts

    def __getattr__(self, name: str) -> Any:  # topic, partition, offset, timestamp, headers
        return getattr(self._message, name)

    def key(self) -> Any:
        return self._parts["key"] if "key" in self._parts else self._message.key()

    def value(self) -> Any:
        return self._parts["value"] if "value" in self._parts else self._message.value()


def decoding(show: Show, url: str | None, what: Decode | None) -> Show:
    """`show` as it is if nothing is to be decoded."""
    if url is None and what is None:
        return show
    from odradek_schemas import Decoder

    decoder = Decoder(registry_of(url, "--decode"))
    wanted = what or Decode.value
    parts = ("key", "value") if wanted is Decode.both else (wanted.value,)

    def decoded(message: Message) -> None:
        found = {part: _json(decoder, message, part) for part in parts}
        show(DecodedMessage(message, **found))

    return decoded


def registry_of(url: str | None, option: str) -> Client:
    """The registry of --schema-registry, or of the client's settings; `option` asked for it."""
    from odradek_schemas import Client, Registry, SettingsError

    settings = session.current().settings
    url = url or settings.get(URL)
    if url is None:
        raise UsageError(f"{option}: name the registry with --schema-registry, or {URL} in the "
                         "client's settings")  # fmt: skip
    try:
        own = {name: value for name, value in settings.items() if name.startswith(PREFIX)}
        return Client(Registry.of(url, own))
    except SettingsError as error:
        raise UsageError(f"--schema-registry: {error}") from error


def _json(decoder: Decoder, message: Message, part: str) -> bytes | None:
    from odradek_schemas import BadRecordError, SchemaNotFoundError, SchemasError, to_json

    given: bytes | None = getattr(message, part)()
    if given is None:
        return None
    try:
        return to_json(decoder.decode(given).value).encode()
    except (BadRecordError, SchemaNotFoundError) as error:
        where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
        print(f"odradek: {where}: the {part} is printed as it is: {error}", file=sys.stderr)
        return given
    except SchemasError as error:
        raise CliError(f"--schema-registry: {error}") from error
