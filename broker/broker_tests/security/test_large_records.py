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
