"""Large requests and responses over TLS: many TLS records per frame, writes that do not fit."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer

from broker_tests.conftest import StartBroker
from broker_tests.security.tls_support import Authority, listener, tls_settings
from odradek_testkit.clients import value_of
from odradek_testkit.engines import on_apache

pytestmark = pytest.mark.skipif(on_apache(), reason="starts our broker with its settings")

RECORDS = 40
BYTES = 900_000


def test_large_records_arrive_as_they_were_sent(
    start_broker: StartBroker, tmp_path: Path, topic: str
) -> None:
    """A socket's buffer has 100 KB by default: reads and writes stop in the middle of a frame."""
    authority = Authority.make(tmp_path / "tls")
    broker = start_broker(
        listener(
            "SSL",
            **tls_settings(authority, authority.issue("server")),
        )
    )
    common = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.trusted()),
    }
    rng = Random(7)
    producer = Producer(common | {"message.max.bytes": 1_000_000})
    sent = []
    for number in range(RECORDS):
        value = rng.randbytes(BYTES - number)
        sent.append(hashlib.sha256(value).hexdigest())
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    found: list[str] = []
    settings = common | {"group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        while len(found) < RECORDS:
            for message in consumer.consume(10, 1.0):
                assert message.error() is None
                found.append(hashlib.sha256(value_of(message)).hexdigest())
    assert found == sent


def test_batches_of_many_small_tls_records(
    start_broker: StartBroker, tmp_path: Path, topic: str
) -> None:
    """librdkafka sends a TLS record for each message and one for its header.

    The broker waits for several of them at once while a frame is incomplete (`tls_connection.py`):
    batches of sizes around each of these limits are acknowledged.
    """
    authority = Authority.make(tmp_path / "tls")
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    common = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.trusted()),
    }
    producer = Producer(common | {"linger.ms": 50, "batch.size": 1_000_000})
    value = Random(8).randbytes(1024)
    total = 0
    for messages in [1, 3, *range(12, 20), *range(44, 52), *range(60, 72), 128, 256, 700]:
        for _ in range(messages):
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0, f"a batch of {messages} messages was not acknowledged"
        total += messages
    settings = common | {"group.id": "g", "auto.offset.reset": "earliest"}
    found = 0
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        while found < total:
            for message in consumer.consume(500, 1.0):
                assert value_of(message) == value
                found += 1
    assert found == total
