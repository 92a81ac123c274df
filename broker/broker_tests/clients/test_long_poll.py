"""A fetch waits in the broker until it can be answered, and is answered without delay then (Q4)."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import TopicPartition

from odradek_testkit import raw_requests as raw
from odradek_testkit.clients import (
    DEADLINE_S,
    Rec,
    consumer_of,
    create_topic,
    numbered,
    produce,
)
from odradek_testkit.engines import Server

# Longer than the deadlines of the tests: a fetch that waits for all of it fails its test.
LONG_MS = 3_600_000
LIBRDKAFKA_LONG_MS = 300_000  # the longest that librdkafka accepts


def test_an_empty_fetch_waits_its_time_and_answers_empty(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    with raw.connect(broker) as connection:
        started = time.monotonic()
        answer = connection.ask(raw.fetch_request(topic, 0, max_wait_ms=300, min_bytes=1))
        took_s = time.monotonic() - started
    assert raw.fetched(answer) == (0, 0, b"")
    assert took_s >= 0.29


def test_a_waiting_fetch_is_woken_by_a_produce(broker: Server, topic: str) -> None:
    """1. A consumer asks and waits up to an hour. 2. Another connection produces. 3. It wakes.

    How soon is measured by `make bench`.
    """
    create_topic(broker, topic)
    with raw.connect(broker) as reader, raw.connect(broker) as writer:
        for round_ in range(10):
            reader.send(raw.fetch_request(topic, round_, max_wait_ms=LONG_MS, min_bytes=1))
            # The wait is parked once the broker has answered a later request of another client.
            assert writer.ask(raw.metadata_request(topic))
            records = raw.batch(b"round %d" % round_)
            assert raw.produced(writer.ask(raw.produce_request(topic, records))) == (0, round_)
            error, high_watermark, got = raw.fetched(reader.receive())
            assert (error, high_watermark) == (0, round_ + 1)
            assert b"round %d" % round_ in got


def test_min_bytes_waits_for_enough(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    one = raw.batch(b"x" * 1_000)
    with raw.connect(broker) as reader, raw.connect(broker) as writer:
        wanted = raw.fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=3 * len(one))
        reader.send(wanted)
        for sent in range(3):
            reader.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                reader.socket.recv(1)
            assert raw.produced(writer.ask(raw.produce_request(topic, one))) == (0, sent)
        reader.socket.settimeout(DEADLINE_S)
        assert len(raw.fetched(reader.receive())[2]) == 3 * len(one)


def test_a_fetch_behind_a_waiting_one_keeps_its_place(broker: Server, topic: str) -> None:
    """Responses come in the order of the requests, also when the second could be answered first."""
    create_topic(broker, topic)
    with raw.connect(broker) as connection:
        connection.send(
            raw.fetch_request(topic, 0, max_wait_ms=200, min_bytes=1, correlation_id=11)
        )
        for correlation_id in (12, 13, 14):
            connection.send(raw.api_versions_request(correlation_id=correlation_id))
        order = [int.from_bytes(connection.receive()[:4]) for _ in range(4)]
    assert order == [11, 12, 13, 14]


def test_errors_do_not_wait(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, numbered(3))
    with raw.connect(broker) as connection:
        for asked, error in ((raw.fetch_request(topic, 99, max_wait_ms=LONG_MS, min_bytes=1), 1),
                             (raw.fetch_request("no-such", 0, max_wait_ms=LONG_MS, min_bytes=1), 3),
                             (raw.fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=1,
                                                partition=9), 3)):  # fmt: skip
            assert raw.fetched(connection.ask(asked))[0] == error


def test_a_client_with_a_long_wait_is_answered_at_once(broker: Server, topic: str) -> None:
    """The same through librdkafka: fetch.wait.max.ms of five minutes does not delay a record."""
    create_topic(broker, topic)
    arrived = threading.Event()
    with consumer_of(broker, fetch_wait_max_ms=LIBRDKAFKA_LONG_MS, fetch_min_bytes=1) as consumer:
        # From the start of an empty partition: the end would be asked for first, and on a
        # busy machine perhaps only after the record was written.
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.5) is None

        def read() -> None:
            if consumer.poll(DEADLINE_S) is not None:
                arrived.set()

        reader = threading.Thread(target=read)
        reader.start()
        produce(broker, topic, [Rec(b"wake up")])
        assert arrived.wait(DEADLINE_S)
        reader.join()
