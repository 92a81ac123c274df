"""A single broker whose disk fills up: producers are refused in time, readers are served, and
free space is enough for it to recover."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from odradek_testkit.engines import RunningBroker, kafka_tool, on_apache
from odradek_testkit.small_disk import SmallDisk

pytestmark = pytest.mark.skipif(on_apache(), reason="the reserve is Odradek's own")

VALUE = os.urandom(100_000)
DEADLINE_S = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "small", megabytes=40) as disk:
        yield disk


def broker_on(disk: SmallDisk, tmp_path: Path) -> RunningBroker:
    settings = {"log.dirs": str(disk.path / "data")}
    return RunningBroker(settings, directory=tmp_path / "broker")


def metric(broker: RunningBroker, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.admin}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith(name + "{")]
    assert found, name
    return float(found[0].rpartition(" ")[2])


def test_producers_wait_for_room_and_readers_do_not(
    disk: SmallDisk, tmp_path: Path, topic: str
) -> None:
    with broker_on(disk, tmp_path) as broker:
        where: dict[str, str | int | float | bool] = {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 2,
        }
        admin = AdminClient(where)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
        delivered: list[int] = []
        failed: list[KafkaError] = []

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message.offset() or 0)
            else:
                failed.append(error)

        producer = Producer({**where, "acks": "all", "message.timeout.ms": 300_000})
        give_up = time.monotonic() + DEADLINE_S
        sent = 0
        while not metric(broker, "odradek_log_dir_refused_produce_total"):
            assert time.monotonic() < give_up, "nobody was refused"
            for _ in range(20):
                producer.produce(topic, VALUE, on_delivery=answered)
                sent += 1
            producer.flush(1.0)
        assert metric(broker, "odradek_log_dir_low") == 1
        assert metric(broker, "odradek_log_dir_offline") == 0
        assert 0 < disk.free_bytes() < 2_500_000, "5 % of 40 MB are kept"
        assert not failed
        assert len(delivered) < sent, "librdkafka goes on trying"

        consumer = Consumer({**where, "group.id": "reader", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = 0
        while read < len(delivered):
            assert time.monotonic() < give_up + DEADLINE_S, f"{read} of {len(delivered)} read"
            read += len(consumer.consume(100, timeout=1.0))
        consumer.commit(offsets=[TopicPartition(topic, 0, read)], asynchronous=False)
        consumer.close()

        another = topic + "-another"
        admin.create_topics([NewTopic(another, 1, 1)])[another].result(DEADLINE_S)

        disk.resize(400)
        assert producer.flush(DEADLINE_S) == 0
        assert not failed
        assert sorted(delivered) == list(range(sent)), "each once, none lost"


@pytest.mark.java
def test_the_java_producer_waits_for_room_too(disk: SmallDisk, tmp_path: Path, topic: str) -> None:
    records = 500  # 50 MB, to a disk of 40
    with broker_on(disk, tmp_path) as broker, ThreadPoolExecutor(1) as pool:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
        producing = pool.submit(
            kafka_tool,
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--command-property", "delivery.timeout.ms=300000"),
            stdin=(("x" * 100_000) + "\n") * records,
            timeout_s=2 * DEADLINE_S,
        )
        give_up = time.monotonic() + DEADLINE_S
        while not metric(broker, "odradek_log_dir_refused_produce_total"):
            assert time.monotonic() < give_up, "nobody was refused"
            assert not producing.done()
            time.sleep(0.1)
        disk.resize(400)
        said = producing.result()
        assert "keeps a reserve of" in said.stderr, "the client shows why"
        latest = {TopicPartition(topic, 0): OffsetSpec.latest()}
        (end,) = admin.list_offsets(latest).values()
        assert end.result(DEADLINE_S).offset == records


def test_a_full_disk_at_start(disk: SmallDisk, tmp_path: Path, topic: str) -> None:
    """A single broker without any free space exits, and a restart loses nothing."""
    broker = broker_on(disk, tmp_path)
    with broker:
        where: dict[str, str | int | float | bool] = {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 2,
        }
        producer = Producer({**where, "acks": "all", "message.timeout.ms": 5_000})
        producer.produce(topic, b"before")
        assert producer.flush(DEADLINE_S) == 0
        process = broker.process
        assert process is not None
        disk.fill()
        admin = AdminClient(where)
        give_up = time.monotonic() + DEADLINE_S
        while process.poll() is None:  # every new topic is a record in the metadata log
            assert time.monotonic() < give_up
            name = f"{topic}-{time.monotonic_ns()}"
            admin.create_topics([NewTopic(name, 10, 1)], request_timeout=2.0)
            time.sleep(0.1)
        assert process.returncode == 75
        assert "No space left on device" in broker.log().splitlines()[-1]
        broker.process = None
        disk.make_room()
        broker.start()
        consumer = Consumer(
            {
                **where,
                "bootstrap.servers": broker.bootstrap,
                "group.id": "r",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"before"
        consumer.close()
