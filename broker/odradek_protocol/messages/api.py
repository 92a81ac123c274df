"""The adapter over kio: requests and responses of every API and version as `Struct`s.

`network/` reads the header and calls `decode_request`; a handler reads the request's fields by
kio's names and returns a `Struct`; `network/` calls `encode_response`. A handler is written
once for all versions: a request field that the version in use lacks has its default, and a response
field that the version lacks is dropped.

    request = decode_request(3, 12, frame, header.body_at)     # Metadata
    request.topics[0].name, request.allow_auto_topic_creation
    encode_response(3, 12, Struct(brokers=[…], topics=[…]))

In both directions times are integers in milliseconds, the zero UUID is None, arrays are lists.
Codecs are compiled at first use of an (API, version): about 3 ms, once.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.decode import Read, compile_reader
from odradek_protocol.messages.encode import Write, compile_writer
from odradek_protocol.messages.headers import (
    RequestHeader,
    flexible,
    parse_request_header,
    request_header,
    response_header,
    supported_versions,
)
from odradek_protocol.messages.kio_table import APIS, REQUEST_FIELDS, RESPONSE_FIELDS
from odradek_protocol.messages.schema import Kind, fields_of, load_class
from odradek_protocol.messages.struct import EncodedItems, Struct
from odradek_protocol.primitives import ANSWER_ITEMS_MAX, ITEMS_MAX
from odradek_protocol.varint import Buffer

__all__ = [
    "DecodeError",
    "EncodedItems",
    "RequestHeader",
    "Struct",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_response_item",
    "flexible",
    "parse_request_header",
    "prepare",
    "request_header",
    "response_fields",
    "response_header",
    "supported_versions",
]


def decode_request(api_key: int, version: int, body: Buffer, at: int = 0) -> Struct:
    """The request whose body starts at byte `at`. Raises only DecodeError."""
    return _decode(_codec(compile_reader, api_key, version, "request"), body, at, ITEMS_MAX)


def decode_response(api_key: int, version: int, body: Buffer, at: int = 0) -> Struct:
    """The response whose body (after the response header) starts at byte `at`."""
    read = _codec(compile_reader, api_key, version, "response")
    return _decode(read, body, at, ANSWER_ITEMS_MAX)


def encode_request(api_key: int, version: int, request: Struct) -> bytes:
    """The body of a request, without its header."""
    return _encode(_codec(compile_writer, api_key, version, "request"), request)


def encode_response(api_key: int, version: int, response: Struct) -> bytes:
    """The body of a response, without its header."""
    return _encode(_codec(compile_writer, api_key, version, "response"), response)


def prepare(api_key: int, version: int) -> None:
    """Makes the codecs with which a broker reads this request and writes its response."""
    _codec(compile_reader, api_key, version, "request")
    _codec(compile_writer, api_key, version, "response")


def encode_response_item(api_key: int, version: int, path: str, item: Struct) -> bytes:
    """One item of an array of structures in a response, for `EncodedItems`.

    `path` names the array: "topics", or "topics.partitions" for a nested one.
    """
    return _encode(_item_codec(api_key, version, path), item)


@cache
def response_fields(api_key: int, version: int) -> frozenset[str]:
    """The fields at the top of a response, in this version or another.

    `encode_response` accepts these, and drops those that the version lacks.
    """
    name = APIS[api_key][0]
    cls = load_class(name, version, "response")
    others = RESPONSE_FIELDS.get(name, {}).get(cls.__name__, {})
    return frozenset(field.name for field in fields_of(cls)).union(others)


@cache
def _item_codec(api_key: int, version: int, path: str) -> Write:
    name = APIS[api_key][0]
    cls = load_class(name, version, "response")
    for part in path.split("."):
        (field,) = (field for field in fields_of(cls) if field.name == part)
        assert field.struct_class is not None
        cls = field.struct_class
    return compile_writer(cls, RESPONSE_FIELDS.get(name, {}))


@cache
def _codec(compile_codec: Callable[..., Any], api_key: int, version: int, kind: Kind) -> Any:
    if api_key not in APIS:
        raise DecodeError(f"unknown API key {api_key}")
    name, lowest, highest, _ = APIS[api_key]
    if not lowest <= version <= highest:
        raise DecodeError(f"{name} has no version {version}")
    fields = REQUEST_FIELDS if kind == "request" else RESPONSE_FIELDS
    return compile_codec(load_class(name, version, kind), fields.get(name, {}))


def _decode(read: Read, body: Buffer, at: int, items_max: int) -> Struct:
    try:
        value, _ = read(body, at, [items_max])
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"cut short or malformed: {e}") from None
    assert isinstance(value, Struct)
    return value


def _encode(write: Write, value: Struct) -> bytes:
    out = bytearray()
    write(out, value)
    return bytes(out)
