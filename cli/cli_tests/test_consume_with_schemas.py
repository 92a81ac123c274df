"""odradek consume --schema-registry: what is decoded, what is not, and what is said then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_tests.schemas.answering import Answer, Answering, ok
from cli_tests.conftest import Odradek
from odradek_schemas import Client, Encoder, Registry
from odradek_testkit.engines import RunningBroker

SCHEMA = """{"type": "record", "name": "Visit", "fields": [
    {"name": "page", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""
VISIT = {"page": "/", "at": 0}
SHOWN = '{"page":"/","at":"1970-01-01T00:00:00+00:00"}'


def answer(method: str, path: str) -> Answer:
    if path in ("/schemas/ids/1", "/subjects/visits/versions/latest"):
        return ok({"schema": SCHEMA, "id": 1, "version": 1})
    return 404, {}, b'{"error_code": 40403, "message": "Schema not found"}'


@pytest.fixture
def registry() -> Iterator[Answering]:
    with Answering(answer) as server:
        yield server


@pytest.fixture
def visits(registry: Answering, broker: RunningBroker, topic: str) -> str:
    """A visit with a key, a value that is no Avro, one of an unknown schema, a tombstone."""
    visit = Encoder.for_subject(Client(Registry(registry.url)), "visits").encode(VISIT)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (visit, b"plain", b"\0\0\0\0\x63", None):
        producer.produce(topic, value, visit, partition=0)
    assert producer.flush(60) == 0
    registry.seen.clear()
    return topic


def test_values_are_decoded_and_the_others_printed_as_they_are(
    odradek: Odradek, visits: str, registry: Answering
) -> None:
    done = odradek("consume", visits, "-p", "0", "-o", "0", "-e", "--schema-registry", registry.url)
    assert done.stdout == f"{SHOWN}\nplain\n\0\0\0\0c\n\n"
    (plain, unknown) = done.stderr.splitlines()
    assert plain.startswith(f"odradek: {visits}-0 offset 1: the value is printed as it is: ")
    assert "0x70, not 0x00" in plain
    assert f"schema id 99 is not in {registry.url}" in unknown


def test_keys_too_with_a_login_from_the_settings(
    odradek: Odradek, visits: str, registry: Answering, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    login = "schema.registry.basic.auth.user.info=ann:secret"
    config.write_text(f"schema.registry.url={registry.url}\n{login}\n")
    done = odradek("--client-config", str(config), "consume", visits, "-p", "0", "-o", "0", "-n",
                   "1", "--decode", "both", "-f", r"%k %v\n")  # fmt: skip
    assert done.stdout == f"{SHOWN} {SHOWN}\n"
    assert {login for _, _, login in registry.seen} == {"Basic YW5uOnNlY3JldA=="}


def test_a_registry_that_is_away_ends_the_command(odradek: Odradek, visits: str) -> None:
    done = odradek("consume", visits, "-p", "0", "-o", "0", "-e", "--schema-registry",
                   "http://127.0.0.1:1", code=1)  # fmt: skip
    assert "--schema-registry: http://127.0.0.1:1 does not answer (schema id 1)" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [(["--decode", "key"], "schema.registry.url in the client's settings"),
     (["--schema-registry", "http://ann:secret@r:1"], "contains a login")],
)  # fmt: skip
def test_refused_before_anything_is_read(odradek: Odradek, options: list[str], why: str) -> None:
    done = odradek("consume", "visits", *options, code=2)
    assert why in done.stderr
    assert "secret" not in done.stderr
