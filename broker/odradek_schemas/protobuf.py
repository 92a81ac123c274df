"""Protobuf: the .proto text is compiled with protoc (grpcio-tools), a message is found by its path.

A value is a dict by the names of the .proto file: enums are names, 64-bit numbers are numbers,
fields without presence have their defaults, those with presence are left out if they are not set.
Compiling runs protoc as a process of its own, in a temporary directory, once per schema (0.1 s).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_schemas.errors import BadRecordError, LibraryMissingError, RegistryError
from odradek_schemas.json_values import plain
from odradek_schemas.registry import Schema
from odradek_schemas.wire import read_indexes, write_indexes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

MAIN = "odradek-schema.proto"
PROTOC_S = 60.0
WELL_KNOWN = "google.protobuf."  # messages with a JSON form of their own, such as Timestamp


class ProtobufCodec:
    """One .proto file with its imports."""

    def __init__(self, schema: Schema, imported: Mapping[str, Schema], what: str) -> None:
        try:
            from google.protobuf import (
                descriptor_pb2,
                descriptor_pool,
                json_format,
                message_factory,
            )
        except ImportError:
            raise LibraryMissingError("Protobuf", "protobuf") from None
        self._json_format = json_format
        self._message_factory = message_factory
        files = descriptor_pb2.FileDescriptorSet()
        files.ParseFromString(_compiled(schema, imported, what))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        self._file: FileDescriptor = pool.FindFileByName(MAIN)
        self._names = [one.name for one in files.file[-1].message_type]

    def decode(self, body: bytes) -> object:
        indexes, rest = read_indexes(body)
        message = self._new(self._message(indexes))
        try:
            message.ParseFromString(rest)
        except Exception as error:  # DecodeError, or an error of the C library
            raise BadRecordError(
                f"the bytes are no {message.DESCRIPTOR.full_name}: {error}"
            ) from None
        return self._plain(message)

    def encode(self, value: object, message_name: str | None = None) -> bytes:
        """`message_name` ("Order" or "Order.Line"): default, the first message of the file."""
        indexes = self._path(message_name)
        message = self._new(self._message(indexes))
        name = message.DESCRIPTOR.full_name
        if not isinstance(value, Mapping):
            raise BadRecordError(f"the value does not fit the message {name}: it has no fields")
        try:
            self._json_format.ParseDict(plain(value), message)  # bytes as base64
        except self._json_format.ParseError as error:
            raise BadRecordError(f"the value does not fit the message {name}: {error}") from None
        return write_indexes(indexes) + bytes(message.SerializeToString())

    def _message(self, indexes: Sequence[int]) -> Descriptor:
        names, at = self._names, self._file.message_types_by_name
        found = None
        for index in indexes:
            if not 0 <= index < len(names):
                raise BadRecordError(f"the schema has no message {list(indexes)}")
            found = at[names[index]]
            names, at = [one.name for one in found.nested_types], found.nested_types_by_name
        if found is None:
            raise BadRecordError("the path to the Protobuf message is empty")
        return found

    def _path(self, message_name: str | None) -> list[int]:
        if message_name is None:
            return [0]
        indexes: list[int] = []
        names = self._names
        for part in message_name.split("."):
            if part not in names:
                raise BadRecordError(f"the schema has no message {message_name}, only "
                                     f"{', '.join(self._names)}")  # fmt: skip
            indexes.append(names.index(part))
            names = [one.name for one in self._message(indexes).nested_types]
        return indexes

    def _new(self, descriptor: Descriptor) -> Any:
        return self._message_factory.GetMessageClass(descriptor)()

    def _plain(self, message: Any) -> object:
        if message.DESCRIPTOR.full_name.startswith(WELL_KNOWN):
            return self._json_format.MessageToDict(message, preserving_proto_field_name=True)
        found: dict[str, object] = {}
        for field in message.DESCRIPTOR.fields:
            if field.has_presence and not message.HasField(field.name):
                continue
            value = getattr(message, field.name)
            entry = field.message_type
            if entry is not None and entry.GetOptions().map_entry:
                inner = entry.fields_by_name["value"]
                found[field.name] = {str(k): self._one(inner, value[k]) for k in value}
            elif field.is_repeated:
                found[field.name] = [self._one(field, one) for one in value]
            else:
                found[field.name] = self._one(field, value)
        return found

    def _one(self, field: FieldDescriptor, value: Any) -> object:
        if field.message_type is not None:
            return self._plain(value)
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return named.name if named is not None else value
        return value


def _compiled(schema: Schema, imported: Mapping[str, Schema], what: str) -> bytes:
    try:
        import grpc_tools
    except ImportError:
        raise LibraryMissingError("Protobuf", "grpcio-tools") from None
    own = Path(str(grpc_tools.__file__)).parent / "_proto"  # Google's well-known types
    with tempfile.TemporaryDirectory(prefix="odradek-proto-") as temporary:
        top = Path(temporary)
        for name, text in {
            **{n: one.text for n, one in imported.items()},
            MAIN: schema.text,
        }.items():
            path = (top / "in" / name).resolve()
            if not path.is_relative_to((top / "in").resolve()):
                raise RegistryError(f"{what} imports {name}, which leaves its directory")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{top / 'in'}", f"-I{own}",
             "--include_imports", f"--descriptor_set_out={top / 'out'}", MAIN],
            capture_output=True, text=True, timeout=PROTOC_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            errors = done.stderr.replace(f"{top / 'in'}/", "").strip()
            raise RegistryError(f"{what} is not a Protobuf schema: {errors}")
        return (top / "out").read_bytes()
