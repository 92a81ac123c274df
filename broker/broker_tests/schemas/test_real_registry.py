"""The client against a real registry: what is registered comes back, what is refused is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek_schemas import (
    Client,
    Decoder,
    Encoder,
    Reference,
    Registry,
    RegistryError,
    Schema,
    SchemaNotFoundError,
)
from odradek_testkit.schema_registry import SchemaRegistry

pytestmark = [
    pytest.mark.java,
    pytest.mark.long,  # the registry is a JVM of its own, which takes 8 s to start
    pytest.mark.timeout(600),
]

AVRO = '{"type": "record", "name": "n.A", "fields": [{"name": "x", "type": "int"}]}'
PROTO = 'syntax = "proto3"; package k; message B { int32 x = 1; message C { int64 y = 1; } }'
JSON = '{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}'


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running.url


@pytest.mark.parametrize(
    ("name", "base", "text"),
    [
        ("n.A", Schema("AVRO", AVRO), '{"type": "record", "name": "n.T", "fields": '
                                      '[{"name": "a", "type": "n.A"}]}'),
        ("d/b.proto", Schema("PROTOBUF", PROTO), 'syntax = "proto3"; import "d/b.proto"; '
                                                 "message T { k.B a = 1; }"),
        ("a.json", Schema("JSON", JSON), '{"type": "object", "properties": '
                                         '{"a": {"$ref": "a.json"}}}'),
    ],
    ids=["avro", "protobuf", "json"],
)  # fmt: skip
def test_schemas_with_imports_come_back(url: str, name: str, base: Schema, text: str) -> None:
    kind = base.kind
    client = Client(Registry(url))
    client.register(f"{kind}-base", base)
    top = Schema(kind, text, (Reference(name, f"{kind}-base", 1),))
    written = Encoder.for_subject(client, f"{kind}-top", top).encode({"a": {"x": 5}})
    other = Client(Registry(url))
    assert Decoder(other).decode(written).value == {"a": {"x": 5}}
    assert other.latest(f"{kind}-top").schema.references == top.references
    assert other.versions(f"{kind}-top") == [1]
    assert {f"{kind}-base", f"{kind}-top"} <= set(other.subjects())


def test_missing_schemas_and_refusals(url: str) -> None:
    client = Client(Registry(url))
    with pytest.raises(SchemaNotFoundError, match=f"schema id 99999 is not in {url}"):
        client.by_id(99999)
    with pytest.raises(SchemaNotFoundError, match="version latest of subject absent is not in"):
        client.latest("absent")
    with pytest.raises(RegistryError, match="refuses subject wrong: 422"):
        client.register("wrong", Schema("PROTOBUF", "this is none"))
    with pytest.raises(RegistryError, match="is this the URL of the REST API"):
        Client(Registry(url.removesuffix("/apis/ccompat/v7"))).by_id(1)
