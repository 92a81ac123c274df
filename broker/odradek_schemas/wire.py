"""The header of a record's value or key: a zero byte, and the schema's id in four bytes.

    frame(7, b"…")              00 00 00 00 07 …
    unframe(value)              Framed(schema_id=7, body=b"…")

A Protobuf body begins with the path to its message in the .proto file, as zigzag varints: a count,
then the index at each level. The second message nested in the first one is 04 00 02 (that is, 2
levels: 0, 1); the first message of the file, [0], is written as a single 00. Indexes count as in
a descriptor, where a map field has a message for its entries (Confluent's Go and Python do so, its
Java does not: nested messages behind a map field are the only ones that this concerns).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from odradek_schemas.errors import BadRecordError

MAGIC = 0
HEADER = struct.Struct(">bI")
LEVELS_MAX = 100  # of nested messages; protoc's own limit on nesting is lower
VARINT_BYTES_MAX = 5


class Framed(NamedTuple):
    """A value without its header."""

    schema_id: int
    body: bytes


def frame(schema_id: int, body: bytes) -> bytes:
    return HEADER.pack(MAGIC, schema_id) + body


def unframe(value: bytes) -> Framed:
    if len(value) < HEADER.size:
        raise BadRecordError(f"{len(value)} bytes are too few for a schema's header of 5 bytes")
    magic, schema_id = HEADER.unpack_from(value)
    if magic != MAGIC:
        raise BadRecordError(
            f"the first byte is {value[0]:#04x}, not 0x00: the record has no schema's header"
        )
    return Framed(schema_id, value[HEADER.size :])


def write_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def read_indexes(body: bytes) -> tuple[list[int], bytes]:
    """The path to the message, and the message's bytes."""
    count, at = _read_zigzag(body, 0)
    if count == 0:
        return [0], body[at:]
    if not 0 < count <= LEVELS_MAX:
        raise BadRecordError(f"the path to a Protobuf message has {count} levels")
    indexes = []
    for _ in range(count):
        index, at = _read_zigzag(body, at)
        indexes.append(index)
    return indexes, body[at:]


def _zigzag(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_zigzag(body: bytes, at: int) -> tuple[int, int]:
    found = 0
    for number in range(VARINT_BYTES_MAX):
        if at + number >= len(body):
            raise BadRecordError("the record ends within the path to its Protobuf message")
        byte = body[at + number]
        found |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + number + 1
    raise BadRecordError(
        f"a number of the path to a Protobuf message exceeds {VARINT_BYTES_MAX} bytes"
    )
