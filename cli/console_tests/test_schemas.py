"""Records of a schema registry: shown, filtered, masked and exported as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_tests.schemas.answering import Answer, Answering, ok
from console_tests.conftest import Console, Kafka, Visitor
from odradek_cli.errors import UsageError
from odradek_console.command import console as console_command
from odradek_schemas import Client, Encoder, Registry, Schema
from odradek_schemas.registry import Kind
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_port
from odradek_testkit.schema_registry import SchemaRegistry

SCHEMA = """{"type": "record", "name": "Visit", "fields": [
    {"name": "page", "type": "string"}, {"name": "visitor", "type": "string"},
    {"name": "ms", "type": "long"}]}"""


def answer(_: str, path: str) -> Answer:
    if path in ("/schemas/ids/1", "/subjects/visits/versions/latest"):
        return ok({"schema": SCHEMA, "id": 1, "version": 1})
    return 404, {}, b'{"error_code": 40403, "message": "Schema not found"}'


@pytest.fixture(scope="module")
def registry() -> Iterator[Answering]:
    with Answering(answer) as server:
        yield server


@pytest.fixture(scope="module")
def visits(registry: Answering, kafka: Kafka) -> str:
    """Twenty visits as Avro, then bytes of an unknown schema, text, and a tombstone."""
    encoder = Encoder.for_subject(Client(Registry(registry.url)), "visits")
    values: list[bytes | None] = [
        encoder.encode({"page": f"/{n}", "visitor": f"secret-{n}", "ms": n}) for n in range(20)
    ]
    topic = kafka.topic("visits", 1)
    kafka.produce(topic, [*values, b"\0\0\0\0\x63x", b"plain", None])
    return topic


@pytest.fixture(scope="module")
def decoding(
    broker: RunningBroker, registry: Answering, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    options = ("--schema-registry", registry.url, "--mask", "visits:visitor")
    with Console(broker.bootstrap, tmp_path_factory.mktemp("schemas"), *options) as running:
        yield running


def found(visitor: Visitor, path: str) -> list[str]:
    lines = [json.loads(line) for line in visitor.get(path).text.splitlines()]
    assert not [one for one in lines if one["event"] == "error"], lines
    return [one["html"] for one in lines if one["event"] == "record"]


def test_values_are_documents_for_people_filters_and_files(decoding: Console, visits: str) -> None:
    visitor = Visitor(decoding).enter()
    page = visitor.get(f"/topics/{visits}/records").text
    assert "&#34;page&#34;: &#34;/19&#34;" in page
    assert "plain" not in page  # a mask is for this topic, and this is no document
    (row,) = found(visitor, f"/topics/{visits}/records/stream?filter=value.ms+%3D%3D+7")
    assert "/7" in row
    assert len(found(visitor, f"/topics/{visits}/records/stream?q=%22/7%22")) == 1
    lines = visitor.get(f"/topics/{visits}/records/export?start=oldest").text.splitlines()
    assert json.loads(json.loads(lines[3])["value"]) == {"page": "/3", "visitor": "•••", "ms": 3}
    assert json.loads(lines[-1])["value"] is None


def test_masks_hide_fields_of_decoded_values_and_stored_bytes(
    decoding: Console, visits: str
) -> None:
    visitor = Visitor(decoding).enter()
    for wanted in ("auto", "json", "text", "hex"):
        page = visitor.get(f"/topics/{visits}/records?format={wanted}").text
        assert "secret-" not in page
        assert "73 65 63 72 65 74" not in page  # in hex
    assert not found(visitor, f"/topics/{visits}/records/stream?q=secret-3")
    assert not found(visitor, f"/topics/{visits}/records/stream?q=secret-3&format=hex")


def test_what_does_not_fit_stays_as_it_is(
    broker: RunningBroker, registry: Answering, visits: str, tmp_path: Path
) -> None:
    """Without masks: an unknown schema, text, a tombstone; and bytes as they are stored."""
    with Console(broker.bootstrap, tmp_path, "--schema-registry", registry.url) as console:
        visitor = Visitor(console).enter()
        page = visitor.get(f"/topics/{visits}/records").text
        assert "plain" in page
        assert "tombstone" in page
        assert "00 00 00 00 63 78" in page
        stored = visitor.get(f"/topics/{visits}/records?format=hex").text
        assert "00 00 00 00 01" in stored
        again = visitor.get(f"/topics/{visits}/produce?from={visits}&partition=0&offset=3").text
        assert "0000000001" in again  # a record that is produced again keeps its bytes


def test_a_registry_that_is_away_is_a_sentence(
    broker: RunningBroker, visits: str, tmp_path: Path
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with Console(broker.bootstrap, tmp_path, "--schema-registry", nowhere) as console:
        visitor = Visitor(console).enter()
        page = visitor.get(f"/topics/{visits}/records").text
        assert f"the schema registry: {nowhere} does not answer" in page
        assert "the formats text and hex do without it" in page
        assert "00 00 00 00 01" in visitor.get(f"/topics/{visits}/records?format=hex").text


def test_a_login_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="contains a login") as refused:
        console_command(bootstrap="127.0.0.1:1", schema_registry="http://ann:hidden@r:1")
    assert "hidden" not in str(refused.value)


REAL_SCHEMAS: dict[Kind, str] = {
    "AVRO": SCHEMA,
    "JSON": """{"type": "object", "required": ["page"], "properties": {
        "page": {"type": "string"}, "visitor": {"type": "string"}, "ms": {"type": "integer"}}}""",
    "PROTOBUF": """syntax = "proto3";
        message Visit { string page = 1; string visitor = 2; int32 ms = 3; }""",
}


@pytest.mark.long  # the registry is a JVM of its own, which takes 8 s to start
@pytest.mark.timeout(600)
def test_a_real_registry(broker: RunningBroker, kafka: Kafka, tmp_path: Path) -> None:
    """Of each format a schema is registered; the records are shown, filtered and exported."""
    with SchemaRegistry(tmp_path / "registry") as registry:
        client = Client(Registry(registry.url))
        options = ("--schema-registry", registry.url)
        with Console(broker.bootstrap, tmp_path, *options) as console:
            visitor = Visitor(console).enter()
            for kind, schema in REAL_SCHEMAS.items():
                topic = kafka.topic(f"real-{kind.lower()}", 1)
                client.register(f"{topic}-value", Schema(kind, schema))
                encoder = Encoder.for_subject(client, f"{topic}-value")
                visits = [{"page": f"/{n}", "visitor": f"v{n}", "ms": n} for n in range(5)]
                kafka.produce(topic, [encoder.encode(visit) for visit in visits])
                page = visitor.get(f"/topics/{topic}/records").text
                assert "&#34;page&#34;: &#34;/4&#34;" in page, kind
                stream = f"/topics/{topic}/records/stream?filter=value.page+%3D%3D+%22/3%22"
                rows = found(visitor, stream)
                assert len(rows) == 1, kind
                path = f"/topics/{topic}/records/export?start=oldest"
                exported = [json.loads(line) for line in visitor.get(path).text.splitlines()]
                assert [json.loads(one["value"])["visitor"] for one in exported] == [
                    "v0", "v1", "v2", "v3", "v4",
                ], kind  # fmt: skip
