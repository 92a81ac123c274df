"""Keys and values of coordinator records, in Apache Kafka's own encoding, so that its tools read
them (`kafka-dump-log --offsets-decoder`).

A key is `int16 type, fields`, a value `int16 version, fields`. A layout is declared once for all
its versions; the codecs are those of the wire protocol (`odradek_protocol/messages/encode.py` and
`decode.py`):

    KEY = RecordSchema("GroupMetadataKey", range(2, 3), (F("group", "string"),))
    VALUE = RecordSchema("GroupMetadataValue", range(0, 5), (…), flexible_from=4)
    KEY.write(2, Struct(group="g"))          # 00 02  00 01 67
    VALUE.read(data)                         # Struct; fields that its version lacks: defaults
"""

import dataclasses
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.decode import Read, compile_reader
from odradek_protocol.messages.encode import Write, compile_writer
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import ITEMS_MAX

_VERSION = struct.Struct(">h")
_TYPES: dict[str, type] = {
    "bool": bool,
    "int8": int,
    "int16": int,
    "uint16": int,
    "int32": int,
    "int64": int,
    "string": str,
    "bytes": bytes,
    "uuid": UUID,
}
_NO_DEFAULT = object()


@dataclass(frozen=True)
class F:
    """One field. `items`: it is an array of structures (`kind` is their name), or a `single` one;
    with `is_array` an array of plain values. `since`/`until` are versions, both included."""

    name: str
    kind: str
    items: "tuple[F, ...]" = ()
    is_array: bool = False
    single: bool = False
    nullable: bool = False
    since: int = 0
    until: int = 32767
    tag: int | None = None
    default: Any = _NO_DEFAULT

    def default_value(self) -> Any:
        if self.default is not _NO_DEFAULT:
            return self.default
        if (self.items or self.is_array) and not self.single:
            return ()
        if self.nullable or self.kind == "uuid":
            return None
        return _TYPES[self.kind]()


class RecordSchema:
    """All versions of one key or value."""

    def __init__(
        self, name: str, versions: range, fields: tuple[F, ...], *, flexible_from: int = 32767
    ) -> None:
        self.name = name
        self.versions = versions
        self._fields = fields
        self._flexible_from = flexible_from
        self._readers: dict[int, Read] = {}
        self._writers: dict[int, Write] = {}

    def write(self, version: int, value: Struct) -> bytes:
        writer = self._writers.get(version)
        if writer is None:
            writer = self._writers[version] = compile_writer(self._class(version), self._missing)
        out = bytearray(_VERSION.pack(version))
        writer(out, value)
        return bytes(out)

    def read(self, data: bytes) -> Struct:
        """DecodeError if this is not such a record, or its version is unknown."""
        version = version_of(data)
        if version not in self.versions:
            raise DecodeError(f"{self.name}: unknown version {version}")
        reader = self._readers.get(version)
        if reader is None:
            reader = self._readers[version] = compile_reader(self._class(version), self._missing)
        try:
            value, _ = reader(data, _VERSION.size, [ITEMS_MAX])
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise DecodeError(f"{self.name}: {error}") from None
        assert isinstance(value, Struct)
        return value

    def _class(self, version: int) -> type:
        return _class_of(self.name, self._fields, version, version >= self._flexible_from)

    @cached_property
    def _missing(self) -> dict[str, dict[str, object]]:
        """The defaults of all fields, by structure, for versions that lack them."""
        found: dict[str, dict[str, object]] = {}

        def add(name: str, fields: tuple[F, ...]) -> None:
            found[name] = {field.name: field.default_value() for field in fields}
            for field in fields:
                if field.items:
                    add(field.kind, field.items)

        add(self.name, self._fields)
        return found


def version_of(data: bytes | None) -> int:
    """The type of a key, or the version of a value; DecodeError if there is none."""
    if data is None or len(data) < _VERSION.size:
        raise DecodeError("the record has no type or version")
    return int(_VERSION.unpack_from(data)[0])


def _class_of(name: str, fields: tuple[F, ...], version: int, flexible: bool) -> type:
    """A class like those of kio, from which the codecs are compiled."""
    members: list[Any] = []
    for field in fields:
        if not field.since <= version <= field.until:
            continue
        kind: Any = (
            _class_of(field.kind, field.items, version, flexible)
            if field.items
            else _TYPES[field.kind]
        )
        if (field.items or field.is_array) and not field.single:
            kind = tuple[kind, ...]
        if field.nullable:
            kind = kind | None
        metadata: dict[str, object] = {} if field.items else {"kafka_type": field.kind}
        if field.tag is not None:
            metadata["tag"] = field.tag
        default = field.default_value()
        members.append((field.name, kind, dataclasses.field(metadata=metadata, default=default)))
    return dataclasses.make_dataclass(name, members, namespace={"__flexible__": flexible})
