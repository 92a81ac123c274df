"""Data that passes through the broker does not stay in its memory."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from odradek_testkit.clients import DEADLINE_S, consume, create_topic
from odradek_testkit.engines import Server, on_apache

pytestmark = pytest.mark.skipif(on_apache(), reason="a JVM grows into its heap whatever it is sent")

MB = 1024 * 1024


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_stream_of_records_leaves_no_memory_behind(broker: Server, topic: str, acks: str) -> None:
    """300 MB in requests of up to 1 MB, acknowledged far sooner than they would time out."""
    create_topic(broker, topic, config={"segment.bytes": str(50 * MB)})
    settings = {"bootstrap.servers": broker.bootstrap, "acks": acks, "linger.ms": 5}
    producer = Producer(settings)
    before = broker.rss_bytes()
    highest = before
    for number in range(30_000):
        while True:
            try:
                producer.produce(topic, b"x" * 10_000, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
            highest = max(highest, broker.rss_bytes())
    assert producer.flush(DEADLINE_S) == 0
    highest = max(highest, broker.rss_bytes())
    assert highest - before < 64 * MB
    consume(broker, topic, 30_000)
    assert broker.rss_bytes() - before < 64 * MB
