"""Retention and compaction as a client sees them (S7, S9): old data is removed, new data kept."""

from __future__ import annotations

import time

from confluent_kafka import TopicPartition

from broker_tests.conftest import StartBroker
from odradek_testkit.clients import (
    Rec,
    consumer_of,
    create_topic,
    produce,
    take,
    wait_until,
)

MB = 1_000_000
QUICK = {
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
}


def megabytes(count: int, timestamp_ms: int, keys: int = 100) -> list[Rec]:
    """Records of 10 KB that hardly compress, with `keys` keys in turn."""
    body = b"x" * 10_000
    return [
        Rec(b"%d:" % i + body, b"key-%d" % (i % keys), timestamp_ms=timestamp_ms)
        for i in range(count * 100)
    ]


def test_retention_by_bytes_and_time(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(QUICK)
    now_ms = int(time.time() * 1000)
    by_size, by_time = topic + "-size", topic + "-time"
    create_topic(broker, by_size, config={"segment.bytes": "1048576", "retention.bytes": "3000000"})
    create_topic(broker, by_time, config={"segment.bytes": "1048576", "retention.ms": "3600000"})
    produce(broker, by_size, megabytes(8, now_ms))
    produce(broker, by_time, megabytes(4, now_ms - 2 * 3_600_000))
    produce(broker, by_time, megabytes(2, now_ms))
    with consumer_of(broker) as consumer:

        def low(name: str) -> int:
            return int(consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=10)[0])

        wait_until(lambda: low(by_size) > 300)
        wait_until(lambda: low(by_time) > 250)
        assert low(by_size) < 600  # at least the 3 MB of retention.bytes
        assert low(by_time) <= 400
        consumer.assign([TopicPartition(by_time, 0, low(by_time))])
        kept = take(consumer, 600 - low(by_time))
        assert kept[-1].offset() == 599


def test_compaction_keeps_the_newest_value_of_each_key(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(QUICK)
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    create_topic(broker, topic, config=config)
    now_ms = int(time.time() * 1000)
    records = megabytes(6, now_ms, keys=50)
    tombstones = [Rec(None, b"key-%d" % i, timestamp_ms=now_ms) for i in range(10)]
    rest = [Rec(b"filler" * 2_000, b"key-49", timestamp_ms=now_ms) for _ in range(200)]
    produce(broker, topic, records + tombstones + rest)
    with consumer_of(broker) as consumer:
        at = TopicPartition(topic, 0)
        end = consumer.get_watermark_offsets(at, timeout=10)[1]
        assert end == 810

        def read_all() -> list[Rec]:
            consumer.assign([TopicPartition(topic, 0, 0)])
            got: list[Rec] = []
            while True:
                (message,) = take(consumer, 1)
                got.append(Rec.of(message))
                if message.offset() == end - 1:
                    return got

        wait_until(lambda: len(read_all()) < 300)
        got = read_all()
    newest = {record.key: record.value for record in records + tombstones + rest}
    seen = {record.key: record.value for record in got}
    assert {k: v for k, v in seen.items() if v is not None} == {
        k: v for k, v in newest.items() if v is not None
    }
