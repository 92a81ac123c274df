"""Pieces that the hand-written Produce and Fetch codecs share."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from odradek_broker.wire.errors import DecodeError
from odradek_broker.wire.varint import read_uvarint, uvarint

# Topics and partitions of one request: each becomes an object of some 300 bytes, so this
# bounds what a hostile frame can take to about 50 MB.
ITEMS_MAX = 150_000

int16 = Struct(">h").unpack_from
int32 = Struct(">i").unpack_from
int64 = Struct(">q").unpack_from
pack_int16 = Struct(">h").pack
pack_int32 = Struct(">i").pack


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def text(view: memoryview, at: int, length: int) -> str:
    if length < 0 or at + length > len(view):
        raise DecodeError(f"string of {length} bytes in {len(view) - at} bytes")
    return str(view[at : at + length], "utf-8")


def legacy_text(view: memoryview, at: int) -> tuple[str, int]:
    (length,) = int16(view, at)
    return text(view, at + 2, length), at + 2 + length


def compact_text(view: memoryview, at: int) -> tuple[str, int]:
    length, at = read_uvarint(view, at)
    return text(view, at, length - 1), at + length - 1


def topic_id(view: memoryview, at: int) -> tuple[bytes, int]:
    return bytes(view[at : at + 16]), at + 16  # if cut short, the read that follows fails


def bad_count(count: int) -> DecodeError:
    return DecodeError(f"an array of {count} items")


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return uvarint(len(data) + 1) + data


def legacy_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return pack_int16(len(data)) + data


def node_endpoints_section(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields at the end of a Produce or Fetch response: tag 0, if there are any."""
    if not endpoints:
        return b"\0"
    data = bytearray(uvarint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        data += pack_int32(node_id) + compact_string(host) + pack_int32(port)
        data += compact_string(rack) + b"\0"
    return b"\x01\x00" + uvarint(len(data)) + data
