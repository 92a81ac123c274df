"""Helpers of client tests: create a topic, produce a list of records, consume a list.

These helpers use librdkafka (through confluent-kafka), because it starts fastest. The tests of the
other clients use those clients directly, as their users do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from odradek_testkit import waiting
from odradek_testkit.connecting import HasAddress, for_librdkafka

DEADLINE_S = waiting.DEADLINE_S
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# Consumers are assigned their partitions; librdkafka requires a group id nevertheless.
CONSUMER_SETTINGS = {
    "group.id": "assigned",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
    "allow.auto.create.topics": False,
}


@dataclass
class Rec:
    """A record as a test writes it; `headers` in order, names may repeat, values may be None."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)
    timestamp_ms: int = 0
    partition: int = 0

    @classmethod
    def of(cls, message: Message) -> Rec:
        headers, partition = message.headers() or [], message.partition()
        assert isinstance(headers, list), "a consumed message has its headers in order"
        assert partition is not None, "a consumed message has a partition"
        return cls(message.value(), message.key(), headers, message.timestamp()[1], partition)


def numbered(count: int, size: int = 20) -> list[bytes]:
    """Values that differ, compress well and name their place: b"0000000017......"."""
    return [b"%010d" % i + b"." * (size - 10) for i in range(count)]


def admin_of(broker: HasAddress) -> AdminClient:
    """Keep it in a variable: its futures fail when it is garbage-collected."""
    return AdminClient({**for_librdkafka(broker)})


def create_topic(
    broker: HasAddress, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = admin_of(broker)
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new])[topic].result(DEADLINE_S)
    wait_until(lambda: topic in admin.list_topics(timeout=DEADLINE_S).topics)
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}

    def led() -> bool:
        """Apache Kafka shows a topic a moment before it leads its partitions."""
        errors = [answer.exception(DEADLINE_S) for answer in admin.list_offsets(asked).values()]
        return not any(errors)

    wait_until(led)


def produce(
    broker: HasAddress, topic: str, values: Iterable[bytes | Rec], **settings: Any
) -> list[Message]:
    """Produces everything and waits for the acks; the delivered messages, in order of their acks.

    Settings are librdkafka's with _ for dots: produce(b, t, [b"x"], compression_type="gzip").
    """
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({**for_librdkafka(broker), **dotted(settings)})
    for value in values:
        rec = value if isinstance(value, Rec) else Rec(value)
        producer.produce(
            topic,
            rec.value,
            rec.key,
            partition=rec.partition,
            headers=rec.headers,
            timestamp=rec.timestamp_ms,
            on_delivery=on_delivery,
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0, "not everything was acknowledged"
    return delivered


@contextmanager
def consumer_of(broker: HasAddress, **settings: Any) -> Iterator[Consumer]:
    base = {**for_librdkafka(broker), **CONSUMER_SETTINGS}
    consumer = Consumer({**base, **dotted(settings)})
    try:
        yield consumer
    finally:
        consumer.close()


def consume(
    broker: HasAddress,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    offset: int = OFFSET_BEGINNING,
    **settings: Any,
) -> list[Message]:
    """The next `count` messages of one partition; AssertionError when they do not arrive."""
    with consumer_of(broker, **settings) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset)])
        return take(consumer, count)


def take(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    give_up = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        for message in consumer.consume(count - len(messages), timeout=1.0):
            assert message.error() is None, message.error()
            messages.append(message)
        if time.monotonic() > give_up:
            raise AssertionError(f"{len(messages)} of {count} messages after {DEADLINE_S:.0f} s")
    return messages


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def wait_until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    waiting.wait_until(condition, deadline_s=deadline_s)


# Attributes that a delivered message always has; confluent-kafka types each of these as optional.


def value_of(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes), value
    return value


def partition_of(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
