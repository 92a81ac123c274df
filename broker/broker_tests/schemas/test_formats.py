"""Each format against bytes that its own specification gives, and against bytes that do not fit."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from odradek_schemas import BadRecordError, LibraryMissingError, RegistryError, Schema, to_json
from odradek_schemas.avro import AvroCodec
from odradek_schemas.json_schema import JsonCodec
from odradek_schemas.protobuf import ProtobufCodec
from odradek_schemas.registry import Reference

AVRO = """{"type": "record", "name": "V", "fields": [
    {"name": "n", "type": "long"}, {"name": "s", "type": "string"},
    {"name": "b", "type": ["null", "bytes"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
]}"""
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Color { RED = 0; BLUE = 1; }
message V {
  int32 a = 1;
  Color color = 2;
  optional int32 maybe = 3;
  repeated Line lines = 4;
  map<string, int64> counts = 5;
  google.protobuf.Timestamp at = 6;
  bytes raw = 7;
  message Line { uint64 n = 1; }
}
message Other { string name = 1; }
"""


def test_avro_as_the_specification_writes_it() -> None:
    """-64 is 7f, "foo" is 06 66 6f 6f, null is branch 00 (Avro 1.11, binary encoding)."""
    codec = AvroCodec(Schema("AVRO", AVRO), {}, "V")
    body = b"\x7f" + b"\x06foo" + b"\x00" + b"\x00" + b"\x04\x01\x2c"
    at = datetime(1970, 1, 1, tzinfo=UTC)
    value = {"n": -64, "s": "foo", "b": None, "at": at, "d": Decimal("3.00")}
    assert codec.decode(body) == value
    assert codec.encode(value) == body
    assert to_json(codec.decode(body)) == (
        '{"n":-64,"s":"foo","b":null,"at":"1970-01-01T00:00:00+00:00","d":"3.00"}'
    )


@pytest.mark.parametrize("value", [{}, {"n": "x"}, {"n": 1, "s": "", "b": 5}, None, {"z": 1}])
def test_values_that_do_not_fit_avro_are_refused(value: object) -> None:
    with pytest.raises(BadRecordError, match="does not fit the Avro schema"):
        AvroCodec(Schema("AVRO", AVRO), {}, "V").encode(value)


def test_avro_with_what_it_imports() -> None:
    base = Schema("AVRO", '{"type": "record", "name": "a.Base", "fields": []}')
    middle = Schema(
        "AVRO",
        '{"type": "record", "name": "a.Mid", "fields": [{"name": "b", "type": "a.Base"}]}',
        (Reference("a.Base", "base", 1),),
    )
    top = '{"type": "record", "name": "a.Top", "fields": [{"name": "m", "type": "a.Mid"}]}'
    codec = AvroCodec(Schema("AVRO", top), {"a.Mid": middle, "a.Base": base}, "Top")
    assert codec.decode(codec.encode({"m": {"b": {}}})) == {"m": {"b": {}}}
    with pytest.raises(RegistryError, match=r"Top is not an Avro schema: .*a\.Mid"):
        AvroCodec(Schema("AVRO", top), {}, "Top")


def test_protobuf_as_its_documentation_writes_it() -> None:
    """a = 150 is 08 96 01."""
    codec = ProtobufCodec(Schema("PROTOBUF", PROTO), {}, "V")
    assert codec.decode(b"\0\x08\x96\x01") == {
        "a": 150, "color": "RED", "lines": [], "counts": {}, "raw": b"",
    }  # fmt: skip
    assert codec.encode({"a": 150}) == b"\0\x08\x96\x01"
    value = {
        "a": -1, "color": "BLUE", "maybe": 0, "lines": [{"n": 2**63}], "counts": {"x": 2**40},
        "at": "2026-01-01T00:00:00Z", "raw": b"\xff",
    }  # fmt: skip
    assert codec.decode(codec.encode(value)) == value
    # Its index is 1: protoc has made a message of the map's entries before it.
    assert codec.encode({"n": 1}, "V.Line") == b"\x04\0\x02\x08\x01"
    assert codec.encode({"name": "x"}, "Other") == b"\x02\x02\x0a\x01x"
    wrong: object
    for wrong in ({"b": 1}, {"a": "x"}, []):
        with pytest.raises(BadRecordError, match="does not fit the message V"):
            codec.encode(wrong)
    for body in (b"\0\x08", b"\x02\x0e", b"\x02\x01", b"\x04\0\x20"):
        with pytest.raises(BadRecordError):
            codec.decode(body)
    with pytest.raises(BadRecordError, match="no message Nothing, only V, Other"):
        codec.encode({}, "Nothing")


def test_protobuf_with_what_it_imports() -> None:
    base = Schema("PROTOBUF", 'syntax = "proto3"; package k; message B { int32 x = 1; }')
    text = 'syntax = "proto3"; import "d/b.proto"; message R { k.B b = 1; }'
    codec = ProtobufCodec(Schema("PROTOBUF", text), {"d/b.proto": base}, "R")
    assert codec.decode(codec.encode({"b": {"x": 5}})) == {"b": {"x": 5}}
    with pytest.raises(RegistryError, match=r"R is not a Protobuf .*d/b\.proto.* not found"):
        ProtobufCodec(Schema("PROTOBUF", text), {}, "R")
    for name in ("../../escaped.proto", "/tmp/escaped.proto"):
        with pytest.raises(RegistryError, match="leaves its directory"):
            ProtobufCodec(Schema("PROTOBUF", text), {name: base}, "R")


def test_json_is_validated_when_it_is_written() -> None:
    base = Schema("JSON", '{"type": "object", "required": ["x"]}')
    codec = JsonCodec(Schema("JSON", '{"$ref": "base.json"}'), {"base.json": base}, "J")
    assert codec.decode(codec.encode({"x": 1})) == {"x": 1}
    assert codec.decode(b'{"y": 1}') == {"y": 1}
    with pytest.raises(BadRecordError, match=r"the JSON schema at \$: 'x' is a required property"):
        codec.encode({})
    with pytest.raises(BadRecordError, match="are not JSON"):
        codec.decode(b"\xff")
    for text in ("{", '{"type": 5}'):
        with pytest.raises(RegistryError, match="J is not a JSON schema"):
            JsonCodec(Schema("JSON", text), {}, "J").encode({})


@pytest.mark.parametrize(
    ("module", "make"),
    [("fastavro", lambda: AvroCodec(Schema("AVRO", AVRO), {}, "V")),
     ("grpc_tools", lambda: ProtobufCodec(Schema("PROTOBUF", PROTO), {}, "V")),
     ("jsonschema", lambda: JsonCodec(Schema("JSON", "{}"), {}, "V").encode(1))],
)  # fmt: skip
def test_a_missing_library_names_the_extra(
    module: str, make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LibraryMissingError, match=r"pip install 'odradek\[schemas\]'"):
        make()  # type: ignore[operator]
