"""Structures inside records of internal topics, in the protocol's flexible encoding.

The metadata log and `__consumer_offsets` hold structures that are not API messages, so kio
has no classes for them. A `Layout` lists the fields of a dataclass in their order on the wire;
tagged fields come last, and only if they do not have their default.

    MEMBER = layout(Member, Field("id", STRING), Field("epochs", INT32S, tag=0))
    write_layout(MEMBER, out, Member("a", (7,)))     # 02 61  01 00 05 02 00000007

Called by `metadata/record_codec.py` and by the record codecs of the coordinators.
"""

import struct
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from odradek_protocol.errors import DecodeError
from odradek_protocol.varint import read_uvarint, write_uvarint

# Ids and lists of replicas are the same in many partitions: sharing equal objects saves most of
# the time and memory of a replay.
SHARED_VALUES_MAX = 4096

Read = Callable[[bytes, int], tuple[Any, int]]  # (bytes, position) → (value, next position)
Write = Callable[[bytearray, Any], None]


class Codec(NamedTuple):
    read: Read
    write: Write


def _fixed(format_: str) -> Codec:
    layout = struct.Struct(format_)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return layout.unpack_from(data, at)[0], at + layout.size

    def write(out: bytearray, value: Any) -> None:
        out += layout.pack(value)

    return Codec(read, write)


def _read_string(data: bytes, at: int) -> tuple[str | None, int]:
    length, at = read_uvarint(data, at)
    if length == 0:
        return None, at
    end = at + length - 1
    if end > len(data):
        raise DecodeError("record: string longer than the record")
    return data[at:end].decode(), end


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    encoded = value.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_uvarint(data, at)
    if length == 0:
        return None, at
    end = at + length - 1
    if end > len(data):
        raise DecodeError("record: bytes longer than the record")
    return bytes(data[at:end]), end


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


@lru_cache(maxsize=SHARED_VALUES_MAX)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


@lru_cache(maxsize=SHARED_VALUES_MAX)
def _uuids(data: bytes) -> tuple[UUID, ...]:
    return tuple(_uuid(data[at : at + 16]) for at in range(0, len(data), 16))


@lru_cache(maxsize=SHARED_VALUES_MAX)
def _int32s(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 4}i", data)


def _read_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    return _uuid(data[at : at + 16]), at + 16


def _write_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes


def array(item: Codec) -> Codec:
    read_item, write_item = item

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_uvarint(data, at)
        if count == 0:
            return None, at
        if count - 1 > len(data) - at:
            raise DecodeError("record: array longer than the record")
        values = []
        for _ in range(count - 1):
            value, at = read_item(data, at)
            values.append(value)
        return tuple(values), at

    def write(out: bytearray, values: tuple[Any, ...] | None) -> None:
        if values is None:
            out.append(0)
            return
        write_uvarint(out, len(values) + 1)
        for value in values:
            write_item(out, value)

    return Codec(read, write)


def fixed_array(item: Codec, item_bytes: int, decode: Callable[[bytes], Any]) -> Codec:
    """An array whose items all have one size: read as one slice."""

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_uvarint(data, at)
        if count == 0:
            return None, at
        end = at + (count - 1) * item_bytes
        if end > len(data):
            raise DecodeError("record: array longer than the record")
        return decode(data[at:end]), end

    return Codec(read, array(item).write)


class Field(NamedTuple):
    name: str
    codec: Codec
    tag: int | None = None


class Layout(NamedTuple):
    """The fields of a structure in their order on the wire; tagged ones come last."""

    cls: type
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]
    defaults: dict[str, Any]


def layout(cls: type, *columns: Field) -> Layout:
    """Tagged fields that a record lacks get the dataclass's default; arrays are then empty."""
    given = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    tagged = tuple(column for column in columns if column.tag is not None)
    defaults = {column.name: given.get(column.name, ()) for column in tagged}
    return Layout(cls, tuple(c for c in columns if c.tag is None), tagged, defaults)


def read_layout(layout: Layout, data: bytes, at: int) -> tuple[Any, int]:
    values = dict(layout.defaults)
    for name, codec, _ in layout.fields:
        values[name], at = codec.read(data, at)
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        for name, codec, known_tag in layout.tagged:
            if tag == known_tag:
                values[name], _ = codec.read(data, at)
        at += size
    return layout.cls(**values), at


def write_layout(layout: Layout, out: bytearray, value: Any) -> None:
    for name, codec, _ in layout.fields:
        codec.write(out, getattr(value, name))
    tagged = [f for f in layout.tagged if getattr(value, f.name) != layout.defaults[f.name]]
    write_uvarint(out, len(tagged))
    for name, codec, tag in tagged:
        assert tag is not None
        content = bytearray()
        codec.write(content, getattr(value, name))
        write_uvarint(out, tag)
        write_uvarint(out, len(content))
        out += content


def nested(layout: Layout) -> Codec:
    return Codec(
        lambda data, at: read_layout(layout, data, at),
        lambda out, value: write_layout(layout, out, value),
    )


INT8, INT16, UINT16 = _fixed(">b"), _fixed(">h"), _fixed(">H")
INT32, INT64, BOOL, FLOAT64 = _fixed(">i"), _fixed(">q"), _fixed(">?"), _fixed(">d")
STRING = Codec(_read_string, _write_string)
BYTES = Codec(_read_bytes, _write_bytes)
UUID_ = Codec(_read_uuid, _write_uuid)
INT32S = fixed_array(INT32, 4, _int32s)
UUIDS = fixed_array(UUID_, 16, _uuids)
