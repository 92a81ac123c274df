"""From the embedded broker to Apache Kafka, under load, with kill -9 of the migration."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cli_tests.conftest import own_configs
from odradek_cli.migrate.clusters import MigrationSide
from odradek_testkit.clients import Rec, admin_of, create_topic, produce, wait_until
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

TOPIC, PARTITIONS, GROUP = "orders", 4, "billing"
BEFORE = 100_000
UNDER_LOAD = 5_000  # at least so many more are written while it is copied
KILLS_AT = (15_000, 60_000)  # records in the destination
DEADLINE_S = 300.0


def test_100_000_records_under_load_with_two_kills(tmp_path: Path) -> None:
    """1. 100,000 records exist, a group has read some, a producer keeps writing.
    2. `migrate --follow` runs, is killed with kill -9, runs again, is killed again, runs again.
    3. The producer stops, --cut-over follows.
    4. Every record is in the destination once, in order; the group continues at its offset."""
    with (
        RunningBroker(directory=tmp_path / "source") as source,
        RunningApacheKafka(directory=tmp_path / "destination") as destination,
    ):
        create_topic(source, TOPIC, PARTITIONS, {"retention.ms": "86400000000"})
        fill(source, BEFORE)
        commit_some(source)
        with load(source) as written:
            for number in KILLS_AT:
                with migration(source, destination, tmp_path, "--follow") as process:
                    reached(number, destination, process, tmp_path)
                    process.kill()
            wait_until(lambda: len(written) >= UNDER_LOAD, DEADLINE_S)
            with migration(source, destination, tmp_path, "--follow") as process:
                reached(BEFORE, destination, process, tmp_path)
                process.kill()
        with migration(source, destination, tmp_path, "--cut-over") as process:
            assert process.wait(DEADLINE_S) == 0, (tmp_path / "migrate.log").read_text()

        total = BEFORE + len(written)
        assert (
            f"verified: {total} records in {PARTITIONS} partitions"
            in (tmp_path / "migrate.log").read_text()
        )
        assert read_all(destination, total) == read_all(source, total)
        assert next_record(destination) == next_record(source)
        assert own_configs(destination, TOPIC) == {"retention.ms": "86400000000"}


def fill(source: Server, count: int) -> None:
    produce(
        source,
        TOPIC,
        (
            Rec(b"%09d" % n, b"k%d" % (n % 1000), [("n", b"%d" % n)], 1_600_000_000_000 + n,
                n % PARTITIONS)
            for n in range(count)
        ),
        linger_ms=20,
        queue_buffering_max_messages=200_000,
    )  # fmt: skip


def commit_some(source: Server) -> None:
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": GROUP})
    places = [TopicPartition(TOPIC, p, 1_000 * (p + 1)) for p in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@contextmanager
def load(source: Server) -> Iterator[list[int]]:
    """A producer that writes until the end of the block; the list grows with what is acked."""
    stop, written = threading.Event(), list[int]()
    producer = Producer({"bootstrap.servers": source.bootstrap, "enable.idempotence": True})

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        written.append(1)

    def work() -> None:
        n = 0
        while not stop.wait(0.01):
            for _ in range(20):
                producer.produce(
                    TOPIC, b"load %d" % n, partition=n % PARTITIONS, on_delivery=delivered
                )
                n += 1
            producer.poll(0)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield written
    finally:
        stop.set()
        worker.join()
        assert producer.flush(60) == 0


@contextmanager
def migration(
    source: Server, destination: Server, directory: Path, *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "odradek_cli", "migrate"]
    command += ["--from", source.bootstrap, "--to", destination.bootstrap, *more]
    with open(directory / "migrate.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def reached(
    count: int, destination: Server, process: subprocess.Popen[bytes], directory: Path
) -> None:
    """Waits for the destination; fails if the migration ends before that."""

    def enough() -> bool:
        assert process.poll() is None, (directory / "migrate.log").read_text()
        return copied(destination) > count

    wait_until(enough, DEADLINE_S)


def copied(destination: Server) -> int:
    """The number of records and markers in the destination; 0 before the topic exists."""
    admin = admin_of(destination)
    if TOPIC not in admin.list_topics(timeout=30).topics:
        return 0
    places = [(TOPIC, p) for p in range(PARTITIONS)]
    with closing(MigrationSide(destination.bootstrap)) as cluster:
        return sum(cluster.ends(places).values())


def read_all(server: Server, count: int) -> dict[int, list[tuple[object, ...]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    found: dict[int, list[tuple[object, ...]]] = {p: [] for p in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for m in consumer.consume(5_000, timeout=5.0):
            partition = m.partition()
            assert partition is not None
            if m.error() is not None:
                ended.add(partition)
            else:
                record = (m.key(), m.value(), m.timestamp()[1], str(m.headers()))
                found[partition].append(record)
    consumer.close()
    assert sum(map(len, found.values())) == count
    return found


def next_record(server: Server) -> dict[int, bytes | None]:
    """The offset that the group would read next in each partition."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )
    places = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], 30)
    found = {}
    for place in places:
        consumer.assign([place])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found[place.partition] = message.value()
    consumer.close()
    return found
