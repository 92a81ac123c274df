"""librdkafka (confluent-kafka) produces and consumes, unmodified.

Every consumer here is assigned its partitions; test_groups.py has consumer groups.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from broker_tests.conftest import StartBroker
from odradek_testkit.clients import (
    CODECS,
    DEADLINE_S,
    Rec,
    admin_of,
    consume,
    consumer_of,
    create_topic,
    numbered,
    partition_of,
    produce,
    take,
)
from odradek_testkit.connecting import for_librdkafka
from odradek_testkit.engines import Server


def test_every_field_of_a_record_comes_back(broker: Server, topic: str) -> None:
    create_topic(broker, topic, partitions=3)
    now_ms = int(time.time() * 1000)
    records = [
        Rec(b"value", b"key", [("a", b"1"), ("a", b"2"), ("none", None), ("", b"")], now_ms),
        Rec(None, b"tombstone", timestamp_ms=now_ms - 10_000),
        Rec(b"", b"", timestamp_ms=now_ms - 5_000),
        Rec(bytes(range(256)), None, timestamp_ms=now_ms),
        Rec("naïve ☃".encode(), "ключ".encode(), [("ü", "ß".encode())], now_ms, partition=2),
    ]
    produce(broker, topic, records)
    assert [Rec.of(m) for m in consume(broker, topic, 4)] == records[:4]
    (other,) = consume(broker, topic, 1, partition=2)
    assert Rec.of(other) == records[4]
    assert other.timestamp()[0] == TIMESTAMP_CREATE_TIME


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec(broker: Server, topic: str, codec: str) -> None:
    create_topic(broker, topic)
    values = numbered(2_000, size=100)
    delivered = produce(broker, topic, values, compression_type=codec, linger_ms=20)
    assert [m.offset() for m in delivered] == list(range(2_000))
    assert [m.value() for m in consume(broker, topic, 2_000)] == values


@pytest.mark.parametrize("codec", CODECS[1:])
def test_topic_with_a_codec_of_its_own_recompresses(broker: Server, topic: str, codec: str) -> None:
    create_topic(broker, topic, config={"compression.type": codec})
    values = numbered(500)
    produce(broker, topic, values[:250], compression_type="none")
    produce(broker, topic, values[250:], compression_type="lz4", linger_ms=20)
    assert [m.value() for m in consume(broker, topic, 500)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: Server, topic: str, acks: int | str) -> None:
    create_topic(broker, topic)
    values = numbered(100)
    produce(broker, topic, values, acks=acks)
    assert [m.value() for m in consume(broker, topic, 100)] == values


def test_idempotent_producer_writes_each_record_once_and_in_order(
    broker: Server, topic: str
) -> None:
    create_topic(broker, topic, partitions=2)
    values = numbered(10_000)
    records = [Rec(value, partition=i % 2) for i, value in enumerate(values)]
    produce(broker, topic, records, enable_idempotence=True, batch_num_messages=100)
    for partition in (0, 1):
        got = consume(broker, topic, 5_000, partition=partition)
        assert [m.value() for m in got] == values[partition::2]
        assert [m.offset() for m in got] == list(range(5_000))


def test_log_append_time(broker: Server, topic: str) -> None:
    create_topic(broker, topic, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    produce(broker, topic, [Rec(v, timestamp_ms=1_000_000) for v in numbered(10)], linger_ms=20)
    after_ms = int(time.time() * 1000)
    for message in consume(broker, topic, 10):
        kind, timestamp_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= timestamp_ms <= after_ms


def test_offsets_by_timestamp(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    start_ms = int(time.time() * 1000) - 3_600_000
    for batch in range(5):  # five batches, ten records each, 100 ms apart
        records = [Rec(b"x", timestamp_ms=start_ms + (batch * 10 + i) * 100) for i in range(10)]
        produce(broker, topic, records, linger_ms=20)
    asked = {0: 0, 1: 1, 99: 1, 100: 1, 101: 2, 2_350: 24, 4_900: 49, 4_901: -1}
    with consumer_of(broker) as consumer:
        for after_ms, expected in asked.items():
            at = TopicPartition(topic, 0, start_ms + after_ms)
            (found,) = consumer.offsets_for_times([at], timeout=DEADLINE_S)
            assert found.offset == (expected if expected >= 0 else OFFSET_END), after_ms
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 50)


def test_message_too_large_is_refused_and_the_next_one_accepted(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    errors: list[KafkaError | None] = []
    producer = Producer({**for_librdkafka(broker), "message.max.bytes": 20_000_000, "linger.ms": 0})
    for value in (b"x" * 2_000_000, b"small"):
        producer.produce(topic, value, partition=0, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(DEADLINE_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
    assert [m.value() for m in consume(broker, topic, 1)] == [b"small"]


def test_large_messages_where_the_topic_allows_them(broker: Server, topic: str) -> None:
    create_topic(broker, topic, config={"max.message.bytes": "12000000"})
    values = [bytes([i]) * 10_000_000 for i in (65, 66)]
    produce(broker, topic, values, message_max_bytes=15_000_000)
    # The fetch limits are far below one message; without an exception for the first batch it would
    # never be delivered.
    got = consume(broker, topic, 2, fetch_message_max_bytes=1_000, fetch_max_bytes=1_000_000,
                  message_max_bytes=1_000_000, receive_message_max_bytes=20_000_000)  # fmt: skip
    assert [m.value() for m in got] == values


def test_offset_out_of_range(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, numbered(5))
    with consumer_of(broker, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1_000)])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in error.str().lower()
    (first,) = consume(broker, topic, 1, offset=1_000)  # auto.offset.reset=earliest
    assert first.offset() == 0


def test_delete_records_then_consume(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, numbered(100))
    admin = admin_of(broker)
    at = TopicPartition(topic, 0, 40)
    deleted = admin.delete_records([at])[at].result(DEADLINE_S)
    assert deleted.low_watermark == 40
    assert [m.offset() for m in consume(broker, topic, 60)] == list(range(40, 100))

    everything = TopicPartition(topic, 0, OFFSET_END)
    assert admin.delete_records([everything])[everything].result(DEADLINE_S).low_watermark == 100
    with consumer_of(broker) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (100, 100)
    produce(broker, topic, [b"after"])
    (after,) = consume(broker, topic, 1)
    assert (after.offset(), after.value()) == (100, b"after")

    beyond = TopicPartition(topic, 0, 5_000)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_partitions_added_while_a_consumer_reads(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    values = numbered(300)
    with consumer_of(broker, topic_metadata_refresh_interval_ms=100) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        produce(broker, topic, values[:100])
        assert [m.value() for m in take(consumer, 100)] == values[:100]

        admin = admin_of(broker)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(DEADLINE_S)
        produce(broker, topic, values[100:200])  # the old partition goes on
        assert [m.value() for m in take(consumer, 100)] == values[100:200]
        produce(broker, topic, [Rec(v, partition=3) for v in values[200:]])
        consumer.incremental_assign([TopicPartition(topic, 3, OFFSET_BEGINNING)])
        assert [m.value() for m in take(consumer, 100)] == values[200:]


def test_one_consumer_of_many_partitions(broker: Server, topic: str) -> None:
    """Fetch sessions: most of the 60 partitions are idle in any one fetch."""
    create_topic(broker, topic, partitions=60)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(60)])
        for sent in range(3):
            produce(broker, topic, [Rec(b"%d" % sent, partition=p) for p in range(60)])
            got = take(consumer, 60)
            assert sorted(partition_of(m) for m in got) == list(range(60))
            assert {m.value() for m in got} == {b"%d" % sent}


def test_topics_are_created_on_first_use(broker: Server, topic: str) -> None:
    produce(broker, topic, [b"first"])
    assert [m.value() for m in consume(broker, topic, 1)] == [b"first"]


def test_topics_are_not_created_on_first_use_when_forbidden(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker({"auto.create.topics.enable": "false"})
    errors: list[KafkaError | None] = []
    producer = Producer({**for_librdkafka(broker), "message.timeout.ms": 3_000})
    producer.produce(topic, b"x", on_delivery=lambda e, _: errors.append(e))
    producer.flush(DEADLINE_S)
    assert errors[0] is not None
    assert errors[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError._MSG_TIMED_OUT)
    assert topic not in admin_of(broker).list_topics(timeout=DEADLINE_S).topics


def test_min_insync_replicas_above_the_replication_factor(broker: Server, topic: str) -> None:
    """min.insync.replicas is capped at the number of replicas, in Apache Kafka too."""
    create_topic(broker, topic, config={"min.insync.replicas": "3"})
    produce(broker, topic, [b"v"], acks="all")
    assert [m.value() for m in consume(broker, topic, 1)] == [b"v"]


def test_compacted_topics_require_keys(broker: Server, topic: str) -> None:
    create_topic(broker, topic, config={"cleanup.policy": "compact"})
    produce(broker, topic, [Rec(b"v", b"k")])
    errors: list[KafkaError | None] = []
    producer = Producer({**for_librdkafka(broker)})
    producer.produce(topic, b"no key", partition=0, on_delivery=lambda e, _: errors.append(e))
    producer.flush(DEADLINE_S)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.INVALID_RECORD


def test_timestamp_too_far_in_the_future_is_refused(broker: Server, topic: str) -> None:
    create_topic(broker, topic, config={"message.timestamp.after.max.ms": "1000"})
    errors: list[KafkaError | None] = []
    producer = Producer({**for_librdkafka(broker)})
    in_an_hour_ms = int(time.time() * 1000) + 3_600_000
    producer.produce(
        topic, b"x", partition=0, timestamp=in_an_hour_ms,
        on_delivery=lambda e, _: errors.append(e),
    )  # fmt: skip
    producer.flush(DEADLINE_S)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.INVALID_TIMESTAMP
