"""Nothing acknowledged is lost when the broker process stops, cleanly or by kill -9."""

from __future__ import annotations

import shutil
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from broker_tests.conftest import StartBroker
from odradek_cli.processes import StartFailedError
from odradek_testkit.clients import (
    DEADLINE_S,
    Rec,
    admin_of,
    consume,
    consumer_of,
    create_topic,
    numbered,
    offset_of,
    produce,
    take,
)
from odradek_testkit.engines import Server, on_apache


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_everything_is_there_after_a_restart(
    start_broker: StartBroker, topic: str, how: str
) -> None:
    broker = start_broker()
    create_topic(broker, topic, partitions=3, config={"retention.ms": "987654321"})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1")]
    now_ms = int(time.time() * 1000)
    records = [
        Rec(value, b"key-%d" % i, headers, now_ms, partition=i % 3)
        for i, value in enumerate(numbered(3_000))
    ]
    produce(broker, topic, records, enable_idempotence=True, compression_type="lz4")
    admin = admin_of(broker)
    deleted = 100 if how == "stop" else 0  # after kill -9 Kafka may forget up to a minute of these
    at = TopicPartition(topic, 1, deleted)
    admin.delete_records([at])[at].result(DEADLINE_S)
    cluster_id = admin.describe_cluster().result(DEADLINE_S).cluster_id

    getattr(broker, how)()
    broker.start()

    admin = admin_of(broker)
    assert admin.describe_cluster().result(DEADLINE_S).cluster_id == cluster_id
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert found["retention.ms"].value == "987654321"
    for partition in range(3):
        wanted = records[partition::3]
        first = deleted if partition == 1 else 0
        got = consume(broker, topic, 1_000 - first, partition=partition)
        assert [m.offset() for m in got] == list(range(first, 1_000))
        assert [Rec.of(m) for m in got] == wanted[first:]
    (ack,) = produce(broker, topic, [b"goes on"])
    assert ack.offset() == 1_000


def test_clients_reconnect_after_a_restart(start_broker: StartBroker, topic: str) -> None:
    """One producer and one consumer keep running; they reconnect by themselves."""
    broker = start_broker()
    create_topic(broker, topic)
    values = numbered(200)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 200,
        }
    )
    with consumer_of(broker, reconnect_backoff_max_ms=200) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for half in (values[:100], values[100:]):
            for value in half:
                producer.produce(topic, value, partition=0)
            assert producer.flush(DEADLINE_S) == 0
            assert [m.value() for m in take(consumer, 100)] == half
            if half is not values[100:]:
                broker.restart()


def test_kill_9_under_load_loses_and_duplicates_nothing(
    start_broker: StartBroker, topic: str
) -> None:
    """1. An idempotent producer writes as fast as it can. 2. kill -9, start; three times.

    3. Every acknowledged record is there once, in its order and at the offset of its ack; what was
    not yet acknowledged was sent again by the producer, and is there once too.
    """
    broker = start_broker()
    create_topic(broker, topic)
    total = 30_000
    acked: dict[bytes, int] = {}
    errors: list[KafkaError] = []
    progress = threading.Condition()

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        with progress:
            if error is not None:
                errors.append(error)
            else:
                value = message.value()
                assert isinstance(value, bytes)
                acked[value] = offset_of(message)
            progress.notify_all()

    def write() -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 50,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
        }
        producer = Producer(settings)
        for value in numbered(total):
            while True:
                try:
                    producer.produce(topic, value, partition=0, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        producer.flush(3 * DEADLINE_S)

    def enough(wanted: int) -> bool:
        return bool(errors) or len(acked) >= wanted

    writer = threading.Thread(target=write)
    writer.start()
    for round_ in (1, 2, 3):
        with progress:
            wanted = round_ * total // 5
            progress.wait_for(partial(enough, wanted), DEADLINE_S)
            assert not errors, errors[0]
            assert len(acked) >= wanted
        broker.kill()
        broker.start()
    writer.join(3 * DEADLINE_S)
    assert not errors, errors[0]
    assert len(acked) == total
    got = consume(broker, topic, total)
    assert [m.value() for m in got] == numbered(total)
    assert {m.value(): m.offset() for m in got} == acked


def test_stop_is_clean(start_broker: StartBroker, topic: str, tmp_path: Path) -> None:
    """SIGTERM ends with exit code 0 and a clean-shutdown marker, also with clients connected."""
    broker: Server = start_broker()
    create_topic(broker, topic)
    produce(broker, topic, numbered(10))
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        take(consumer, 10)
        assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    broker.start()


@pytest.mark.skipif(on_apache(), reason="about our own file names in our own data directory")
def test_a_log_of_an_unknown_partition_is_renamed_not_deleted(broker: Server, topic: str) -> None:
    """1. A topic has records. 2. The metadata log is lost: the broker, its only voter, reports it.
    3. Its voter mark is deleted; it starts, and the records are still there."""
    create_topic(broker, topic)
    produce(broker, topic, numbered(10))
    broker.stop()
    shutil.rmtree(broker.data_dir / "__cluster_metadata-0")
    before = (broker.data_dir / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    with pytest.raises(StartFailedError, match="its vote is missing"):
        broker.start()
    (broker.data_dir / ".odradek-voter").unlink()
    broker.start()
    (aside,) = broker.data_dir.glob(f"{topic}-0.*-stray")
    assert (aside / "00000000000000000000.log").read_bytes() == before
    assert f"{topic}-0 belongs to no topic of this cluster" in broker.log()
    create_topic(broker, topic)
    produce(broker, topic, numbered(1))
    consume(broker, topic, 1)
