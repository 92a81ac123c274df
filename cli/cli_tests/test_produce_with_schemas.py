"""odradek produce --schema-registry: `consume` prints it again, and bad lines are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_tests.schemas.answering import Answer, Answering, ok
from cli_tests.conftest import Odradek
from odradek_schemas import Client, Registry, Schema
from odradek_schemas.registry import Kind
from odradek_testkit.clients import consume
from odradek_testkit.engines import RunningBroker
from odradek_testkit.schema_registry import SchemaRegistry

AVRO = """{"type": "record", "name": "Visit", "namespace": "web", "fields": [
    {"name": "page", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                               "scale": 2}},
    {"name": "raw", "type": ["null", "bytes"], "default": null},
    {"name": "links", "type": {"type": "array", "items": {"type": "record", "name": "Link",
        "fields": [{"name": "to", "type": ["null", "string"]}]}}},
    {"name": "last", "type": ["null", "Link"], "default": null},
    {"name": "counts", "type": {"type": "map", "values": ["long", "double"]}}]}"""
JSON = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
PROTOBUF = 'syntax = "proto3"; message Order { string id = 1; int64 cents = 2; }'
SCHEMAS: dict[int, tuple[Kind, str]] = {
    1: ("AVRO", AVRO),
    2: ("JSON", JSON),
    3: ("PROTOBUF", PROTOBUF),
}
VISIT = {
    "page": "/", "at": "2026-01-31T12:00:00+00:00", "price": "12.50", "raw": "AP8=",
    "links": [{"to": None}, {"to": "/a"}], "last": {"to": "/a"}, "counts": {"a": 1, "b": 0.5},
}  # fmt: skip


def answer(method: str, path: str) -> Answer:
    """Subjects end with the id of their schema: orders-1-value."""
    last = path.rpartition("/")[2]
    if path.startswith("/schemas/ids/"):
        number, version = int(last), {}
    elif path.startswith("/subjects/") and path.count("-") == 2 and "missing" not in path:
        number = int(path.split("-")[1])
        version = {"id": number, "version": 1}
    else:
        return 404, {}, b'{"error_code": 40401, "message": "Subject not found"}'
    kind, text = SCHEMAS[number]
    return ok({"schema": text, "schemaType": kind, **version})


@pytest.fixture
def registry() -> Iterator[Answering]:
    with Answering(answer) as server:
        yield server


@pytest.mark.parametrize(
    ("number", "value"),
    [(1, VISIT), (2, {"id": 7}), (3, {"id": "a", "cents": 5})],
    ids=["avro", "json", "protobuf"],
)
def test_consume_prints_what_produce_was_given(
    odradek: Odradek, registry: Answering, number: int, value: dict[str, object]
) -> None:
    topic = f"orders-{number}"
    known = "--schema-registry", registry.url
    odradek("produce", topic, "--create", *known, stdin=json.dumps(value) + "\n")
    done = odradek("consume", topic, "-o", "beginning", "-e", *known)
    assert json.loads(done.stdout) == value
    assert done.stderr == ""


def test_keys_tombstones_and_json_records(odradek: Odradek, registry: Answering) -> None:
    known = "--schema-registry", registry.url
    lines = [{"key": '{"id": 1}', "value": '{"id": 2}'}, {"key": '{"id": 1}', "value": None}]
    odradek(
        "produce", "keyed-2", "--create", "--json", "--encode", "both", *known,
        stdin="".join(json.dumps(line) + "\n" for line in lines),
    )  # fmt: skip
    done = odradek(
        "consume", "keyed-2", "-o", "beginning", "-e", "--decode", "both", "--json", *known
    )
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["key"], one["value"]) for one in shown] == [
        ('{"id":1}', '{"id":2}'),
        ('{"id":1}', None),
    ]


@pytest.mark.parametrize(
    ("topic", "line", "why"),
    [
        ("orders-1", "paid", "line 1: value: is not JSON"),
        ("orders-1", {**VISIT, "page": 5}, "line 1: value: the value does not fit the Avro schema: "
         "$.page: 5 is no string"),
        ("orders-1", {**VISIT, "at": "noon"}, "$.at: 'noon' is no timestamp-millis"),
        ("orders-1", {**VISIT, "price": True}, "$.price: True is no decimal"),
        ("orders-1", {**VISIT, "raw": "?"}, "$.raw: '?' is no null; $.raw: '?' is no bytes"),
        ("orders-1", {**VISIT, "other": 1}, "$.other: the record web.Visit has no such field"),
        ("orders-1", {"page": "/"}, "$.at: is missing"),
        ("orders-2", {"id": "x"}, "does not fit the JSON schema at $.id"),
        ("orders-3", {"nope": 1}, "does not fit the message Order"),
        ("missing-1", {}, "register a schema for it first"),
    ],
)  # fmt: skip
def test_lines_that_do_not_fit_end_the_command(
    odradek: Odradek, registry: Answering, topic: str, line: object, why: str
) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    done = odradek("produce", topic, "--create", "--schema-registry", registry.url,
                   stdin=f"{text}\n", code=1)  # fmt: skip
    assert why in done.stderr


@pytest.mark.java
@pytest.mark.long  # the registry is a JVM of its own, which takes 8 s to start
@pytest.mark.timeout(600)
def test_a_real_registry(odradek: Odradek, broker: RunningBroker, tmp_path: Path) -> None:
    """1. A subject without a schema is refused, and names it.
    2. Of each format a schema is registered; `produce` writes with its id, `consume` prints it.
    3. A newer version of a subject is used by the next `produce`; records of both are read."""
    values = {1: VISIT, 2: {"id": 7}, 3: {"id": "a", "cents": 5}}
    with SchemaRegistry(tmp_path / "registry") as registry:
        client = Client(Registry(registry.url))
        known = "--schema-registry", registry.url
        done = odradek("produce", "real-0", "--create", *known, stdin="{}\n", code=1)
        assert "real-0-value" in done.stderr
        assert "register a schema for it first" in done.stderr
        for number, (kind, text) in SCHEMAS.items():
            topic = f"real-{number}"
            made = client.register(f"{topic}-value", Schema(kind, text))
            line = json.dumps(values[number])
            odradek("produce", topic, "--create", *known, stdin=f"{line}\n")
            (record,) = consume(broker, topic, 1)
            written = record.value()
            assert written is not None
            assert (written[0], int.from_bytes(written[1:5], "big")) == (0, made)
            done = odradek("consume", topic, "-o", "beginning", "-e", *known)
            assert (json.loads(done.stdout), done.stderr) == (values[number], "")
        newer = AVRO.replace(
            '"fields": [', '"fields": [{"name": "n", "type": "int", "default": 0},', 1
        )
        client.register("real-1-value", Schema("AVRO", newer))
        odradek("produce", "real-1", *known, stdin=json.dumps({**VISIT, "n": 5}) + "\n")
        done = odradek("consume", "real-1", "-o", "beginning", "-e", *known)
        assert [json.loads(one) for one in done.stdout.splitlines()] == [VISIT, {**VISIT, "n": 5}]


def test_encode_needs_a_registry(odradek: Odradek) -> None:
    done = odradek("produce", "t", "--encode", "key", code=2)
    assert "--encode: name the registry with --schema-registry" in done.stderr
