"""kafka-python 3: producer, assigned consumer and admin client, unmodified."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, OffsetSpec

from odradek_testkit.clients import CODECS, DEADLINE_S, numbered, wait_until
from odradek_testkit.connecting import for_python
from odradek_testkit.engines import Server


@pytest.fixture
def admin(broker: Server) -> Iterator[Any]:
    client = KafkaAdminClient(**for_python(broker))
    yield client
    client.close()


@pytest.fixture
def created(admin: KafkaAdminClient, topic: str) -> str:
    """A topic with two partitions."""
    admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
    return topic


def send_all(broker: Server, topic: str, values: list[bytes], **settings: Any) -> list[Any]:
    """Metadata of every record, after all acks."""
    producer = KafkaProducer(**for_python(broker), **settings)
    try:
        futures = [producer.send(topic, value, partition=0) for value in values]
        return [future.get(DEADLINE_S) for future in futures]
    finally:
        producer.close()


def read(broker: Server, topic: str, count: int, **settings: Any) -> list[Any]:
    """The first `count` records of partition 0."""
    consumer = KafkaConsumer(**for_python(broker), **settings)
    try:
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        records: list[Any] = []
        give_up = time.monotonic() + DEADLINE_S
        while len(records) < count and time.monotonic() < give_up:
            for batch in consumer.poll(timeout_ms=500).values():
                records.extend(batch)
        return records
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec(broker: Server, created: str, codec: str) -> None:
    values = numbered(1_000, size=100)
    compression = None if codec == "none" else codec
    sent = send_all(broker, created, values, compression_type=compression, linger_ms=20)
    assert [m.offset for m in sent] == list(range(1_000))
    assert [r.value for r in read(broker, created, 1_000)] == values


def test_every_field_of_a_record_comes_back(broker: Server, created: str) -> None:
    now_ms = int(time.time() * 1000)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    producer = KafkaProducer(**for_python(broker))
    producer.send(created, b"v", b"k", headers=headers, partition=0, timestamp_ms=now_ms)
    producer.send(created, None, b"tombstone", partition=0)
    producer.send(created, b"no key", partition=0)
    producer.flush(DEADLINE_S)
    producer.close()
    first, second, third = read(broker, created, 3)
    assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
    assert (first.timestamp, first.timestamp_type) == (now_ms, 0)
    assert (second.key, second.value) == (b"tombstone", None)
    assert (third.key, third.value) == (None, b"no key")


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: Server, created: str, acks: int | str) -> None:
    values = numbered(50)
    # An idempotent producer requires acks=all; the other values need idempotence turned off.
    send_all(broker, created, values, acks=acks, enable_idempotence=acks == "all")
    assert [r.value for r in read(broker, created, 50)] == values


def test_beginning_end_and_time_offsets(
    broker: Server, admin: KafkaAdminClient, created: str
) -> None:
    start_ms = int(time.time() * 1000) - 60_000
    producer = KafkaProducer(**for_python(broker))
    for i in range(20):
        producer.send(created, b"x", partition=0, timestamp_ms=start_ms + i * 1_000)
    producer.flush(DEADLINE_S)
    producer.close()
    at, idle = TopicPartition(created, 0), TopicPartition(created, 1)
    consumer = KafkaConsumer(**for_python(broker))
    assert consumer.beginning_offsets([at, idle]) == {at: 0, idle: 0}
    assert consumer.end_offsets([at, idle]) == {at: 20, idle: 0}
    found = consumer.offsets_for_times({at: start_ms + 4_500})[at]
    assert (found.offset, found.timestamp) == (5, start_ms + 5_000)
    assert consumer.offsets_for_times({at: start_ms + 60_000})[at] is None

    admin.delete_records({at: 7})
    assert consumer.beginning_offsets([at]) == {at: 7}
    consumer.assign([at])
    consumer.seek(at, 12)
    first = next(consumer)
    assert first.offset == 12
    assert consumer.position(at) == 13
    consumer.close()
    latest = admin.list_partition_offsets({at: OffsetSpec.LATEST})
    assert latest[at].offset == 20


def test_admin_topics(broker: Server, admin: KafkaAdminClient, created: str) -> None:
    assert created in admin.list_topics()
    (described,) = admin.describe_topics([created])
    assert [p["partition_index"] for p in described["partitions"]] == [0, 1]
    assert all(p["leader_id"] == 1 and p["isr_nodes"] == [1] for p in described["partitions"])
    with pytest.raises(kafka_errors.TopicAlreadyExistsError):
        admin.create_topics([created])
    admin.create_partitions({created: 4})
    wait_until(lambda: len(admin.describe_topics([created])[0]["partitions"]) == 4)
    (paged,) = admin.describe_topic_partitions([created])["topics"]
    assert [p["partition_index"] for p in paged["partitions"]] == [0, 1, 2, 3]
    admin.delete_topics([created])
    wait_until(lambda: created not in admin.list_topics())
    with pytest.raises(kafka_errors.UnknownTopicOrPartitionError):
        admin.delete_topics([created])


def test_admin_configs(broker: Server, admin: KafkaAdminClient, created: str) -> None:
    def modified() -> dict[str, str]:
        found = admin.describe_configs([ConfigResource("TOPIC", created)])
        return {name: c["value"] for name, c in found["topic"][created].items()}

    admin.alter_configs([ConfigResource("TOPIC", created, {"retention.ms": "60000"})])
    wait_until(lambda: modified().get("retention.ms") == "60000")
    admin.reset_configs([ConfigResource("TOPIC", created, ["retention.ms"])])
    wait_until(lambda: "retention.ms" not in modified())
    everything = admin.describe_configs([ConfigResource("BROKER", "1")], config_filter="all")
    assert everything["broker"]["1"]["log.dirs"]["value"] == str(broker.data_dir)


def test_admin_cluster_and_log_dirs(broker: Server, admin: KafkaAdminClient, created: str) -> None:
    cluster = admin.describe_cluster()
    assert [(b["broker_id"], f"{b['host']}:{b['port']}") for b in cluster["brokers"]] == [
        (1, broker.bootstrap)
    ]
    send_all(broker, created, [b"x" * 10_000])
    (answer,) = admin.describe_log_dirs()
    (directory,) = answer["log_dirs"]
    assert directory["error_code"] == 0
    sizes = {
        p["partition_index"]: p["partition_size"]
        for t in directory["topics"]
        if t["name"] == created
        for p in t["partitions"]
    }
    assert sizes[0] > 10_000
    assert sizes[1] == 0
