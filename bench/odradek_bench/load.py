"""The load that users run: librdkafka as producer, consumer and admin client.

Every function takes the address of a server, moves the given records, and returns what it saw,
which verify.py checks. Both engines get the same client with the same settings; nothing here knows
which engine it talks to. Loads over plain sockets are in raw_load.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_bench.endpoints import endpoint
from odradek_bench.verify import StalledError, Tally, WrongAnswerError, tally

ADMIN_TIMEOUT_S = 60.0
CHUNK = 10_000  # records handed to librdkafka in one call
QUEUED_MAX = 200_000  # the limit of librdkafka's queue; more only costs memory
STALL_S = 60.0  # a case without progress for this long has failed


# -- topics ----------------------------------------------------------------------------------------


def create_topic(
    address: str,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    admin = AdminClient(endpoint(address).client_settings)
    new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
    admin.create_topics([new], request_timeout=ADMIN_TIMEOUT_S)[topic].result(ADMIN_TIMEOUT_S)
    wait_until_led(address, topic, partitions)
    log_size(address, topic, partitions)  # a leader may be in the metadata before it has taken over


def delete_topic(address: str, topic: str) -> None:
    admin = AdminClient(endpoint(address).client_settings)
    admin.delete_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[topic].result(ADMIN_TIMEOUT_S)


def wait_until_led(address: str, topic: str, partitions: int) -> None:
    """Waits until every partition has a leader and all its replicas are in sync."""
    admin = AdminClient(endpoint(address).client_settings)
    give_up = time.monotonic() + STALL_S
    while True:
        found = admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic].partitions
        whole = [p for p in found.values() if p.leader > 0 and len(p.isrs) == len(p.replicas)]
        if len(whole) == partitions:
            return
        if time.monotonic() > give_up:
            raise StalledError(f"{topic}: {len(whole)} of {partitions} partitions have leaders")
        time.sleep(0.02)


# -- librdkafka ------------------------------------------------------------------------------------


def produce(
    address: str, topic: str, pool: Sequence[bytes], count: int, *, acks: str, partitions: int
) -> None:
    """Record i carries payload i and goes to partition i mod partitions; all are acknowledged."""
    producer = Producer(
        {
            **endpoint(address).client_settings,
            "acks": acks,
            "queue.buffering.max.messages": QUEUED_MAX + CHUNK,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    unit = len(pool) * partitions  # after this many records payload and partition repeat together
    chunk = [
        {"value": pool[i % len(pool)], "partition": i % partitions}
        for i in range(max(1, CHUNK // unit) * unit)
    ]
    sent = 0
    while sent < count:
        part = chunk if count - sent >= len(chunk) else chunk[: count - sent]
        queued = producer.produce_batch(topic, part)
        if queued != len(part):
            raise WrongAnswerError(f"librdkafka took {queued} of {len(part)} records")
        sent += queued
        _drain(producer, QUEUED_MAX - len(chunk))
    left = producer.flush(STALL_S)
    if left:
        raise StalledError(f"{left} of {count} records were not acknowledged in {STALL_S:.0f} s")


def _drain(producer: Producer, queued_max: int) -> None:
    give_up = time.monotonic() + STALL_S
    while len(producer) > max(0, queued_max):
        producer.poll(0.01)
        if time.monotonic() > give_up:
            raise StalledError(f"no progress in {STALL_S:.0f} s")


def consume(address: str, topic: str, partitions: int, count: int) -> list[Message]:
    """The first `count` records of a topic, kept for a check outside of the measured time."""
    consumer = Consumer(
        {
            **endpoint(address).client_settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        found: list[Message] = []
        give_up = time.monotonic() + STALL_S
        while len(found) < count:
            if messages := consumer.consume(CHUNK, 0.2):
                found += messages
                give_up = time.monotonic() + STALL_S
            elif time.monotonic() > give_up:
                raise StalledError(f"{topic}: no record after {len(found)} of {count}")
        return found
    finally:
        consumer.close()


def values(messages: Sequence[Message]) -> Iterator[bytes]:
    for message in messages:
        if error := message.error():
            raise WrongAnswerError(f"a record came as an error: {error}")
        value = message.value()
        assert isinstance(value, bytes)
        yield value


def log_size(address: str, topic: str, partitions: int) -> int:
    """Records between the beginning and the high watermark of all partitions (ListOffsets)."""
    consumer = Consumer({**endpoint(address).client_settings, "group.id": "bench"})
    try:
        ends = [_watermarks(consumer, TopicPartition(topic, p)) for p in range(partitions)]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    give_up = time.monotonic() + STALL_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=ADMIN_TIMEOUT_S)
        except KafkaException:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        else:
            return low, high


def read_back(address: str, topic: str, partitions: int, count: int) -> Tally:
    """Counts and sums all records of a topic; finds records beyond `count` too."""
    size = log_size(address, topic, partitions)
    if size != count:
        raise WrongAnswerError(f"{topic}: {count} records sent, the log holds {size}")
    return tally(values(consume(address, topic, partitions, count)))
