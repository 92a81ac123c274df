"""Builds a writer for a message from kio's class of it.

A writer takes (output, value) and appends. The value is a `Struct`, whose fields have kio's names.
Fields that are left out get Kafka's default, fields of other versions are dropped, and a name that
no version has is a TypeError: a mistake in a handler. Example: `Struct(name="a")` of a compact
string field `name` is written as 02 61.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from odradek_protocol.messages.decode import FIXED_FORMATS, ZERO_UUID_BYTES, Defaults
from odradek_protocol.messages.schema import MessageField, fields_of, is_flexible
from odradek_protocol.messages.struct import EncodedItems, Struct
from odradek_protocol.varint import write_uvarint

Write = Callable[[bytearray, Any], None]
WriteFields = Callable[[bytearray, dict[str, Any]], None]

PACKED_FORMATS = FIXED_FORMATS | {"error_code": "h"}


def compile_writer(cls: type, missing: Defaults) -> Write:
    """A writer of the structure `cls`; `missing` names the fields that other versions have."""
    fields = fields_of(cls)
    known = {field.name for field in fields} | missing.get(cls.__name__, {}).keys()
    steps: list[WriteFields] = []
    run: list[MessageField] = []

    def end_run() -> None:
        if run:
            steps.append(_run_writer(run))
            run.clear()

    for field in fields:
        if field.tag is not None:
            continue
        if field.kafka_type in PACKED_FORMATS and not field.is_array:
            run.append(field)
        else:
            end_run()
            steps.append(_step(field, _field_writer(field, is_flexible(cls), missing)))
    end_run()
    if is_flexible(cls):
        steps.append(_tag_section(fields, missing))
    return _struct_writer(cls.__name__, known, steps)


def _struct_writer(name: str, known: set[str], steps: list[WriteFields]) -> Write:
    def write_struct(out: bytearray, value: Struct) -> None:
        fields = value.__dict__
        if not fields.keys() <= known:
            raise TypeError(f"{name} has no field {sorted(fields.keys() - known)} in any version")
        for write in steps:
            write(out, fields)

    return write_struct


def _run_writer(run: list[MessageField]) -> WriteFields:
    packed = struct.Struct(">" + "".join(PACKED_FORMATS[field.kafka_type] for field in run))
    pack = packed.pack
    items = [(field.name, field.default) for field in run]

    def write_run(out: bytearray, fields: dict[str, Any]) -> None:
        try:
            out += pack(*[fields.get(name, default) for name, default in items])
        except struct.error as e:
            e.add_note(f"fields {[(name, fields.get(name)) for name, _ in items]}")
            raise

    return write_run


def _step(field: MessageField, write: Write) -> WriteFields:
    name, default = field.name, field.default

    def write_field(out: bytearray, fields: dict[str, Any]) -> None:
        try:
            write(out, fields.get(name, default))
        except (TypeError, AttributeError) as e:
            e.add_note(f"in field {name}")
            raise

    return write_field


def _tag_section(fields: list[MessageField], missing: Defaults) -> WriteFields:
    """Tagged fields in the order of their tags, except those with their default value."""
    tagged = []
    for field in sorted((f for f in fields if f.tag is not None), key=lambda f: f.tag or 0):
        write = _field_writer(field, True, missing)
        default = bytearray()
        write(default, field.default)
        tagged.append((field.tag or 0, field.name, write, default))

    def write_tags(out: bytearray, fields: dict[str, Any]) -> None:
        section = bytearray()
        count = 0
        for tag, name, write, default in tagged:
            if name not in fields:
                continue
            data = bytearray()
            write(data, fields[name])
            if data != default:
                count += 1
                write_uvarint(section, tag)
                write_uvarint(section, len(data))
                section += data
        write_uvarint(out, count)
        out += section

    return write_tags


def _field_writer(field: MessageField, flexible: bool, missing: Defaults) -> Write:
    if field.struct_class is not None:
        item = compile_writer(field.struct_class, missing)
        if field.nullable and not field.is_array and field.tag is None:
            item = _nullable(item)
    elif field.kafka_type in PACKED_FORMATS:
        item = _packed(PACKED_FORMATS[field.kafka_type])
    elif field.kafka_type == "uuid":
        item = write_uuid
    else:
        nullable = field.nullable and not field.is_array
        item = _variable(field.kafka_type, flexible, nullable)
    return _array(item, flexible, field.nullable) if field.is_array else item


def _packed(format_character: str) -> Write:
    pack = struct.Struct(">" + format_character).pack

    def write_packed(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write_packed


def _variable(kafka_type: str, flexible: bool, nullable: bool) -> Write:
    is_string = kafka_type == "string"
    pack_length = struct.Struct(">h" if is_string else ">i").pack

    def write_variable(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise TypeError(f"None for a {kafka_type} that may not be null")
            out += b"\0" if flexible else pack_length(-1)
            return
        data = value.encode() if is_string else value
        if flexible:
            write_uvarint(out, len(data) + 1)
        else:
            out += pack_length(len(data))
        out += data

    return write_variable


def _array(item: Write, flexible: bool, nullable: bool) -> Write:
    pack_length = struct.Struct(">i").pack

    def write_array(out: bytearray, values: Sequence[Any] | EncodedItems | None) -> None:
        if values is None:
            if not nullable:
                raise TypeError("None for an array that may not be null")
            out += b"\0" if flexible else pack_length(-1)
            return
        encoded = isinstance(values, EncodedItems)
        items: Sequence[Any] = values.items if isinstance(values, EncodedItems) else values
        if flexible:
            write_uvarint(out, len(items) + 1)
        else:
            out += pack_length(len(items))
        if encoded:
            out += b"".join(items)
            return
        for value in items:
            item(out, value)

    return write_array


def _nullable(item: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"  # KIP-893
        else:
            out += b"\x01"
            item(out, value)

    return write_nullable


def write_uuid(out: bytearray, value: UUID | None) -> None:
    out += ZERO_UUID_BYTES if value is None else value.bytes
