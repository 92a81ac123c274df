"""`odradek migrate`: the copy, the state after an interrupted run, and refusals.

Here from one embedded broker to another; test_migrate_to_apache.py does it with Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from cli_tests.conftest import Odradek, own_configs
from odradek_cli.migrate import copy
from odradek_cli.migrate.clusters import MigrationSide
from odradek_cli.migrate.state import UNDATED_MS
from odradek_testkit.clients import Rec, admin_of, consume, create_topic, produce
from odradek_testkit.engines import RunningBroker, Server
from odradek_testkit.raw_requests import batch, connect, produce_request, produced

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with RunningBroker(directory=tmp_path_factory.mktemp("destination")) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"m-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def move(odradek: Odradek, broker: Server, destination: Server, name: str) -> Odradek:
    """move("--cut-over") runs the command for this test's topic."""
    sides = ("--from", broker.bootstrap, "--to", destination.bootstrap, "--topic", name)
    return lambda *args, code=0: odradek("migrate", *sides, *args, code=code)


ODD = [
    Rec(b"value", b"key", [("a", b"1"), ("a", None), ("b", b"")], 1_600_000_000_000),
    Rec(None, b"tombstone", [], 1_600_000_000_500),
    Rec(b"", None, [], 1_500_000_000_000),
    Rec(b"\x00\xff", b"", [("ключ", "знач".encode())], 1_600_000_001_000),
]


def commit(server: Server, group: str, topic: str, offset: int, metadata: str = "") -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group})
    place = TopicPartition(topic, 0, offset, metadata)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def committed(server: Server, group: str) -> TopicPartition:
    admin = admin_of(server)
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (place,) = asked[group].result(DEADLINE_S).topic_partitions
    assert isinstance(place, TopicPartition)
    return place


def in_a_transaction(server: Server, topic: str, values: list[bytes], *, commits: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(DEADLINE_S)
    if commits:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)
    with closing(MigrationSide(server.bootstrap)) as cluster:
        assert cluster.settled([(topic, 0)], DEADLINE_S)


def all_records(server: Server, topic: str, count: int, partition: int = 0) -> list[Rec]:
    found = consume(server, topic, count, partition=partition, isolation_level="read_committed")
    last = found[-1].offset() if found else -1
    assert last is not None
    assert end_is_reached(server, topic, partition, last)
    return [Rec.of(message) for message in found]


def end_is_reached(server: Server, topic: str, partition: int, last: int) -> bool:
    """Whether only markers of transactions follow the record at `last`."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "end",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, last + 1)])
    try:
        message = consumer.poll(DEADLINE_S)
        return message is not None and message.error() is not None
    finally:
        consumer.close()


def test_everything_arrives_and_groups_go_on(
    broker: Server, destination: Server, name: str, move: Odradek
) -> None:
    """1. Source: deleted head, odd records, an aborted transaction, groups at several places.
    2. A run copies and verifies. 3. More is written. 4. The cut-over moves groups and settings."""
    create_topic(broker, name, 2, {"cleanup.policy": "compact", "max.message.bytes": "2000000"})
    keyed = [Rec(b"%d" % i, b"k%d" % i, [], 1_600_000_000_000 + i) for i in range(10)]
    produce(broker, name, keyed)
    odd = [Rec(r.value, r.key or b"x", r.headers, r.timestamp_ms, 1) for r in ODD]
    produce(broker, name, odd)
    commit(broker, f"{name}-mid", name, 4, "note")
    commit(broker, f"{name}-end", name, 10)

    said = move().stdout
    assert "verified: 14 records in 2 partitions" in said
    produce(broker, name, [Rec(b"later", b"later", [], 1_600_000_002_000)])
    said = move("--cut-over").stdout

    assert "14 records copied before" in said
    assert "verified: 15 records" in said
    assert "2 offsets of 2 groups" in said
    wanted = [*keyed, Rec(b"later", b"later", [], 1_600_000_002_000)]
    assert all_records(destination, name, 11) == wanted
    assert all_records(destination, name, 4, 1) == odd
    mid = committed(destination, f"{name}-mid")
    assert mid.metadata == "note"
    assert consume(destination, name, 1, offset=mid.offset)[0].value() == b"4"
    end = committed(destination, f"{name}-end")
    assert consume(destination, name, 1, offset=end.offset)[0].value() == b"later"
    assert own_configs(destination, name) == {
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
    }
    assert "already cut over" in move("--cut-over").stdout


def test_gaps_and_transactions(
    broker: Server, destination: Server, name: str, move: Odradek
) -> None:
    """Offsets of source and destination differ; the group goes on at the same record."""
    create_topic(broker, name)
    produce(broker, name, [Rec(b"gone"), Rec(b"gone"), *ODD])
    admin = admin_of(broker)
    deleted = admin.delete_records([TopicPartition(name, 0, 2)])
    next(iter(deleted.values())).result(DEADLINE_S)
    in_a_transaction(broker, name, [b"aborted"] * 3, commits=False)
    in_a_transaction(broker, name, [b"committed-1", b"committed-2"], commits=True)
    commit(broker, f"{name}-before", name, 1)  # records that the group has not read are deleted
    commit(broker, f"{name}-aborted", name, 7)  # within an aborted transaction
    commit(broker, f"{name}-mid", name, 11)
    assert "verified: 6 records" in move("--cut-over").stdout
    found = all_records(destination, name, 6)
    assert found[:4] == ODD
    for group, value in (
        ("before", b"value"),
        ("aborted", b"committed-1"),
        ("mid", b"committed-2"),
    ):
        place = committed(destination, f"{name}-{group}")
        assert consume(destination, name, 1, offset=place.offset)[0].value() == value


def test_a_run_that_dies_between_records_and_commit(
    broker: Server,
    destination: Server,
    name: str,
    move: Odradek,
    odradek: Odradek,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. The records of its third transaction are in the destination, its commit is not sent.
    2. The next run aborts it and continues: no record is missing or duplicated."""
    create_topic(broker, name, 2, {"max.message.bytes": "1000"})  # less than we write at once
    values = [Rec(b"%05d" % i, None, [], 1_600_000_000_000 + i, i % 2) for i in range(1_000)]
    produce(broker, name, values, batch_size=500)
    monkeypatch.setattr(copy, "TRANSACTION_RECORDS", 100)
    monkeypatch.setattr(copy, "POLL_RECORDS", 100)
    commits: list[int] = []
    real = copy.Copier._commit

    def dies(self: copy.Copier, moved: object) -> None:
        commits.append(1)
        if len(commits) == 3:
            self._producer.flush(DEADLINE_S)
            raise KeyboardInterrupt
        real(self, moved)  # type: ignore[arg-type]

    monkeypatch.setattr(copy.Copier, "_commit", dies)
    move(code=130)
    monkeypatch.setattr(copy.Copier, "_commit", real)
    said = move("--cut-over").stdout
    assert "200 records copied before" in said
    for partition in (0, 1):
        found = all_records(destination, name, 500, partition)
        assert found == [r for r in values if r.partition == partition]


def test_undated_records(broker: Server, destination: Server, name: str, move: Odradek) -> None:
    """librdkafka would set the current time; they get the oldest timestamp that it keeps."""
    create_topic(broker, name)
    with connect(broker) as connection:
        error, _ = produced(connection.ask(produce_request(name, batch(b"old", now_ms=0))))
        assert error == 0
    move()
    (found,) = consume(destination, name, 1)
    assert found.timestamp()[1] == UNDATED_MS


def test_refusals(
    broker: Server, destination: Server, name: str, move: Odradek, odradek: Odradek
) -> None:
    same = odradek("migrate", "--from", broker.bootstrap, "--to", broker.bootstrap, code=1).stderr
    assert "the same cluster" in same
    assert "not in the source" in move(code=1).stderr
    internal = move("--topic", "__consumer_offsets", code=1).stderr
    assert "internal topics are not migrated" in internal
    create_topic(broker, name)
    create_topic(destination, name)
    produce(destination, name, [b"somebody else's"])
    assert "no state of a migration" in move(code=1).stderr


def test_cut_over_waits_for_open_transactions(
    broker: Server, destination: Server, name: str, move: Odradek
) -> None:
    create_topic(broker, name)
    produce(broker, name, [b"before"])
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(DEADLINE_S)
    assert "open transaction" in move("--cut-over", code=1).stderr
    producer.commit_transaction(DEADLINE_S)
    with closing(MigrationSide(broker.bootstrap)) as cluster:
        assert cluster.settled([(name, 0)], DEADLINE_S)
    assert "verified: 2 records" in move("--cut-over").stdout


def test_records_that_retention_deletes_before_they_are_copied(
    broker: Server, destination: Server, name: str, move: Odradek
) -> None:
    create_topic(broker, name)
    produce(broker, name, [b"0", b"1"])
    move()
    produce(broker, name, [b"2", b"3", b"4"])
    admin = admin_of(broker)
    deleted = admin.delete_records([TopicPartition(name, 0, 4)])
    next(iter(deleted.values())).result(DEADLINE_S)
    said = move("--cut-over").stdout
    assert f"{name}:0: offsets 2 to 3 were deleted" in said
    found = [r.value for r in all_records(destination, name, 3)]
    assert found == [b"0", b"1", b"4"]


def test_differences_are_found(
    broker: Server, destination: Server, name: str, move: Odradek
) -> None:
    """Another client wrote to the destination during the copy."""
    create_topic(broker, name)
    produce(broker, name, [b"one"])
    move()
    produce(destination, name, [b"intruder"])
    assert "has 2 records, 1 were read" in move(code=1).stderr


def test_compacted_topics_are_not_compacted_before_the_cut_over(
    broker: Server, destination: Server, name: str, move: Odradek
) -> None:
    create_topic(broker, name, 1, {"cleanup.policy": "compact", "retention.ms": "1000"})
    move()
    held = own_configs(destination, name)
    assert held["cleanup.policy"] == "delete"
    assert held["retention.ms"] == "-1"
