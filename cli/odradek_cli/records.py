r"""Records as text: what `consume` prints, and what `produce --json` reads back.

One line of JSON per record holds all of it, so that `consume --json | produce --json` makes a copy:

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp_ms": 1767225600000,
     "key": "k", "headers": [["source", "cli"]], "value": {"base64": "/w=="}}

A template (--format) prints what it names: '%k\t%v\n'.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from odradek_cli.errors import CliError, UsageError
from odradek_cli.escapes import unescape
from odradek_cli.output import plain

Headers = list[tuple[str, bytes | None]]


class Message(Protocol):
    """A record as it was read: a Message of confluent-kafka, or of a share group."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...
    def headers(self) -> Any: ...
    def value(self) -> Any: ...


Show = Callable[[Message], None]

FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "headers", "value")
NO_TIMESTAMP = -1


# -- printing --------------------------------------------------------------------------------------


def printer(template: str | None, full: bool, as_json: bool) -> Show:
    """How records are printed; the three ways exclude each other."""
    if sum((template is not None, full, as_json)) > 1:
        raise UsageError("--format, --full and --json exclude each other")
    if template is not None:
        render = compile_template(template)
    else:
        render = _json_line if as_json else _full_line if full else _value_line

    def show(message: Message) -> None:
        sys.stdout.buffer.write(render(message))
        sys.stdout.buffer.flush()

    return show


def _value_line(message: Message) -> bytes:
    return _bytes(message.value()) + b"\n"


def _full_line(message: Message) -> bytes:
    moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    place = f"{message.partition()}:{message.offset()}"
    key, value = _text(message.key()), _text(message.value())
    headers = ",".join(f"{name}={_text(value)}" for name, value in headers_of(message))
    return f"{place}\t{when}\t{key}\t{headers}\t{value}\n".encode()


def _json_line(message: Message) -> bytes:
    return json.dumps(as_dict(message), ensure_ascii=False).encode() + b"\n"


def as_dict(message: Message) -> dict[str, Any]:
    """One record; bytes that are not UTF-8 come as {"base64": "…"}."""
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        "key": plain(message.key()),
        "headers": [[name, plain(value)] for name, value in headers_of(message)],
        "value": plain(message.value()),
    }


def headers_of(message: Message) -> Headers:
    return list(message.headers() or [])  # headers that were read are always a list of pairs


def _text(value: Any) -> str:
    return "(none)" if value is None else bytes(value).decode(errors="replace")


def _bytes(value: Any) -> bytes:
    return b"" if value is None else bytes(value)


def _length(value: Any) -> bytes:
    return b"-1" if value is None else str(len(bytes(value))).encode()


def _headers(message: Message) -> bytes:
    return b",".join(name.encode() + b"=" + _bytes(value) for name, value in headers_of(message))


# As in kcat (%s, %S) and rpk (%v, %V).
_DIRECTIVES: dict[str, Callable[[Message], bytes]] = {
    "t": lambda m: (m.topic() or "").encode(),
    "p": lambda m: str(m.partition()).encode(),
    "o": lambda m: str(m.offset()).encode(),
    "T": lambda m: str(m.timestamp()[1]).encode(),
    "k": lambda m: _bytes(m.key()),
    "K": lambda m: _length(m.key()),
    "v": lambda m: _bytes(m.value()),
    "V": lambda m: _length(m.value()),
    "s": lambda m: _bytes(m.value()),
    "S": lambda m: _length(m.value()),
    "h": _headers,
    "%": lambda _: b"%",
}


def _literal(text: bytes) -> Callable[[Message], bytes]:
    return lambda _: text


def compile_template(template: str) -> Callable[[Message], bytes]:
    parts: list[Callable[[Message], bytes]] = []
    for literal, directive in re.findall(r"([^%]+)|%(.?)", template, re.DOTALL):
        if literal:
            parts.append(_literal(unescape(literal).encode()))
        elif directive in _DIRECTIVES:
            parts.append(_DIRECTIVES[directive])
        else:
            known = " ".join(f"%{name}" for name in _DIRECTIVES)
            raise UsageError(f"--format: %{directive} is unknown; known are {known}")
    return lambda message: b"".join(part(message) for part in parts)


# -- reading back ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordToWrite:
    """A record to be written; None: no key, a tombstone, a partition chosen by key, now."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


def from_json(line: bytes, number: int) -> RecordToWrite:
    """A record of `consume --json`. Topic and offset are left to where it is written."""
    at = f"line {number}"
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CliError(f"{at}: is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CliError(f"{at}: expected an object as `odradek consume --json` prints it")
    for name in document:
        if name not in FIELDS:
            raise CliError(f"{at}: {name}: unknown field; known are {', '.join(FIELDS)}")
    if "value" not in document:
        raise CliError(f"{at}: value: is missing; null makes a tombstone")
    timestamp = _integer(at, "timestamp_ms", document.get("timestamp_ms"), NO_TIMESTAMP)
    return RecordToWrite(
        _data(at, "key", document.get("key")),
        _data(at, "value", document["value"]),
        _parsed_headers(at, document.get("headers")),
        _integer(at, "partition", document.get("partition"), 0),
        None if timestamp == NO_TIMESTAMP else timestamp,
    )


def _data(at: str, name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise CliError(f"{at}: {name}.base64: is not base64: {error}") from error
    raise CliError(
        f'{at}: {name}: expected a string, null or {{"base64": "…"}}; write a JSON document as a '
        "string"
    )


def _integer(at: str, name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CliError(f"{at}: {name}: expected an integer of at least {least}")
    return value


def _parsed_headers(at: str, value: Any) -> Headers:
    if value is None:
        return []
    if not isinstance(value, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise CliError(f'{at}: headers: expected a list of pairs such as [["name", "value"]]')
    return [(name, _data(at, f"headers.{name}", data)) for name, data in value]
