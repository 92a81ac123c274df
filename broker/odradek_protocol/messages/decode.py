"""Builds a reader for a message from kio's class of it.

A reader takes (buffer, position, budget) and returns (value, position after it). Runs of
fixed-size fields are read with one `struct` call. Lengths and counts are checked against the
bytes that remain before anything is allocated, and all arrays of one message together may have
`ITEMS_MAX` items, those of an answer `ANSWER_ITEMS_MAX` (primitives.py): a two-byte item can become
an object of 300 bytes, so a frame of the permitted 100 MB could otherwise fill the memory. Example:
an array count of 2**31 in a frame of 20 bytes is a DecodeError.
"""

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.schema import MessageField, fields_of, is_flexible
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import STRING_BYTES_MAX, tagged_fields
from odradek_protocol.varint import Buffer, read_uvarint

Read = Callable[[Buffer, int, list[int]], tuple[Any, int]]
Defaults = dict[str, dict[str, object]]  # class name → fields that this version may lack

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
ERROR_CODES: dict[int, int] = {code.value: code for code in ErrorCode}
ZERO_UUID_BYTES = bytes(16)


def compile_reader(cls: type, missing: Defaults) -> Read:
    """A reader of the structure `cls`; `missing` are defaults for fields of other versions."""
    template: dict[str, object] = dict(missing.get(cls.__name__, {}))
    steps: list[tuple[list[str], Callable[..., Any], int]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    run: list[MessageField] = []

    def end_run() -> None:
        if run:
            packed = struct.Struct(">" + "".join(FIXED_FORMATS[f.kafka_type] for f in run))
            steps.append(([f.name for f in run], packed.unpack_from, packed.size))
            run.clear()

    for field in fields_of(cls):
        template.pop(field.name, None)
        if field.tag is not None:
            template[field.name] = field.default
            tagged[field.tag] = (field.name, _field_reader(field, is_flexible(cls), missing))
        elif field.kafka_type in FIXED_FORMATS and not field.is_array:
            run.append(field)
        else:
            end_run()
            steps.append(([field.name], _field_reader(field, is_flexible(cls), missing), 0))
    end_run()
    return _struct_reader(template, steps, tagged if is_flexible(cls) else None)


def _struct_reader(
    template: dict[str, object],
    steps: list[tuple[list[str], Callable[..., Any], int]],
    tagged: dict[int, tuple[str, Read]] | None,
) -> Read:
    def read_struct(buf: Buffer, at: int, budget: list[int]) -> tuple[Struct, int]:
        fields = template.copy()
        for names, read, size in steps:
            if size:
                fields.update(zip(names, read(buf, at), strict=True))
                at += size
            else:
                fields[names[0]], at = read(buf, at, budget)
        if tagged is not None:
            if buf[at]:
                at = _read_tagged(buf, at, budget, tagged, fields)
            else:
                at += 1
        return Struct(**fields), at

    return read_struct


def _read_tagged(
    buf: Buffer,
    at: int,
    budget: list[int],
    tagged: dict[int, tuple[str, Read]],
    fields: dict[str, object],
) -> int:
    found, at = tagged_fields(buf, at)
    for tag, start, end in found:
        if tag in tagged:
            name, read = tagged[tag]
            fields[name], start = read(buf, start, budget)
            if start != end:
                raise DecodeError(f"tagged field {name} does not have the size it claims")
    return at


def _field_reader(field: MessageField, flexible: bool, missing: Defaults) -> Read:
    if field.struct_class is not None:
        item = compile_reader(field.struct_class, missing)
        if field.nullable and not field.is_array and field.tag is None:
            item = _nullable(item)
    elif field.kafka_type in FIXED_FORMATS:
        item = _fixed(FIXED_FORMATS[field.kafka_type])
    else:
        nullable = field.nullable and not field.is_array
        item = _variable(field.kafka_type, flexible, nullable)
    return _array(item, flexible, field.nullable) if field.is_array else item


def _fixed(format_character: str) -> Read:
    packed = struct.Struct(">" + format_character)
    unpack_from, size = packed.unpack_from, packed.size

    def read_fixed(buf: Buffer, at: int, _: list[int]) -> tuple[Any, int]:
        return unpack_from(buf, at)[0], at + size

    return read_fixed


def _variable(kafka_type: str, flexible: bool, nullable: bool) -> Read:
    if kafka_type == "uuid":
        return read_uuid
    if kafka_type == "error_code":
        return read_error_code
    assert kafka_type in ("string", "bytes", "records"), kafka_type
    is_string = kafka_type == "string"
    length_of = compact_length if flexible else int16_length if is_string else int32_length

    def read_bytes(buf: Buffer, at: int, _: list[int]) -> tuple[str | bytes | None, int]:
        length, at = length_of(buf, at)
        end = at + length
        if length < 0:
            if not nullable:
                raise DecodeError(f"null for a {kafka_type} that may not be null")
            return None, at
        if end > len(buf) or (is_string and length > STRING_BYTES_MAX):
            raise DecodeError(f"{kafka_type} of {length} bytes in {len(buf) - at} bytes")
        return (str(buf[at:end], "utf-8") if is_string else bytes(buf[at:end])), end

    return read_bytes


def _array(item: Read, flexible: bool, nullable: bool) -> Read:
    length_of = compact_length if flexible else int32_length

    def read_array(buf: Buffer, at: int, budget: list[int]) -> tuple[list[Any] | None, int]:
        count, at = length_of(buf, at)
        if count < 0:
            if not nullable:
                raise DecodeError("null for an array that may not be null")
            return None, at
        budget[0] -= count
        if count > len(buf) - at:
            raise DecodeError(f"array of {count} items in {len(buf) - at} bytes")
        if budget[0] < 0:
            raise DecodeError("the arrays of the message have more items than are allowed")
        items = []
        for _ in range(count):
            value, at = item(buf, at, budget)
            items.append(value)
        return items, at

    return read_array


def _nullable(item: Read) -> Read:
    def read_nullable(buf: Buffer, at: int, budget: list[int]) -> tuple[Any, int]:
        if buf[at] >= 0x80:  # a negative byte: null (KIP-893)
            return None, at + 1
        return item(buf, at + 1, budget)

    return read_nullable


def compact_length(buf: Buffer, at: int) -> tuple[int, int]:
    length, at = read_uvarint(buf, at)
    return length - 1, at


_int16 = struct.Struct(">h").unpack_from
_int32 = struct.Struct(">i").unpack_from


def int16_length(buf: Buffer, at: int) -> tuple[int, int]:
    return _int16(buf, at)[0], at + 2


def int32_length(buf: Buffer, at: int) -> tuple[int, int]:
    return _int32(buf, at)[0], at + 4


def read_uuid(buf: Buffer, at: int, _: list[int]) -> tuple[UUID | None, int]:
    """A UUID; None for the zero UUID."""
    raw = bytes(buf[at : at + 16])
    if len(raw) < 16:
        raise DecodeError("UUID cut short")
    return (None if raw == ZERO_UUID_BYTES else UUID(bytes=raw)), at + 16


def read_error_code(buf: Buffer, at: int, _: list[int]) -> tuple[int, int]:
    """An ErrorCode, or the bare number of one that kio does not know."""
    (code,) = _int16(buf, at)
    return ERROR_CODES.get(code, code), at + 2
