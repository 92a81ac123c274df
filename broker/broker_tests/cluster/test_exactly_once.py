"""Exactly once, on three brokers, with kill -9 of brokers and of the programs that use it.

The unmarked tests are small versions of the long ones: same programs, same checks.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from broker_tests.clients.test_transactions import ready, state_of
from broker_tests.cluster.conftest import StartCluster
from broker_tests.cluster.txn_workers import (
    ACCOUNTS,
    OPENING_BALANCE,
    Workers,
    read_balances,
    read_committed,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct
from odradek_testkit.cluster import Cluster
from odradek_testkit.raw_requests import RawConnection

FIND_COORDINATOR, CREATE_TOPICS = 10, 19

CONFIG = {"min.insync.replicas": "2"}
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
}
KEYS = 50
PARTITIONS = 3


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    return start_cluster(3, SETTINGS)


def write_input(cluster: Cluster, topic: str, count: int) -> None:
    """Value "n" under key n % KEYS, in order for each key."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number), str(number % KEYS))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


class Output:
    """Reads what is committed, and remembers how far it came."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.by_key: dict[bytes, list[int]] = defaultdict(list)
        self.count = 0

    def read(self) -> int:
        for partition in range(PARTITIONS):
            bootstrap, offset = self._cluster.bootstrap, self._offsets[partition]
            for message in read_committed(bootstrap, self._topic, partition, offset):
                self.by_key[message.key()].append(int(message.value()[:-1]))
                self._offsets[partition] = message.offset() + 1
                self.count += 1
        return self.count

    def check(self, count: int) -> None:
        assert self.count == count
        for key, found in self.by_key.items():
            assert found == list(range(int(key), count, KEYS)), key


def copy_everything(
    cluster: Cluster, topic: str, directory: Path, count: int, workers: int, kills: int
) -> None:
    """A broker or a worker is killed each time that another part of the output was written."""
    source, target = f"{topic}-in", f"{topic}-out"
    for name in (source, target):
        cluster.create_topic(name, partitions=PARTITIONS, config=CONFIG)
    write_input(cluster, source, count)
    output = Output(cluster, target)

    def has_copied(wanted: int) -> bool:
        return output.read() >= wanted

    commands = [
        ["copy", cluster.bootstrap, f"{topic}-{number}", topic, source, target]
        for number in range(workers)
    ]
    with Workers(directory, *commands) as running:
        for kill in range(kills):
            wanted = count * (kill + 1) // (kills + 2)
            cluster.wait_until(partial(has_copied, wanted), f"{wanted} copied", 120)
            running.kill(kill % workers)
            if kill % 2 == 0:
                victim = kill // 2 % 3 + 1
                cluster.kill(victim)
                cluster.start([victim])
        cluster.wait_until(lambda: output.read() >= count, "all copied", 240)
        # A record that was copied twice would be read now.
        running.kill(0)
        cluster.wait_until(lambda: running.restarts >= kills + 1, "started again")
    output.read()
    output.check(count)


def test_consume_transform_produce(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    copy_everything(cluster, topic, tmp_path, count=3_000, workers=2, kills=1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_consume_transform_produce_100_000(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    copy_everything(cluster, topic, tmp_path, count=100_000, workers=3, kills=8)


def keep_books(
    cluster: Cluster, topic: str, directory: Path, kills: int, snapshots: int, seconds: float
) -> None:
    """Each partition has one writer, so its stable records end between two transactions of it."""
    cluster.create_topic(topic, partitions=PARTITIONS, config=CONFIG)
    commands = [
        ["bank", cluster.bootstrap, f"{topic}-{index}", topic, str(index), str(index)]
        for index in range(PARTITIONS)
    ]
    taken = 0
    ledgers: set[tuple[int, ...]] = set()
    began = time.monotonic()
    with Workers(directory, *commands) as running:
        while taken < snapshots or time.monotonic() - began < seconds:
            for partition in range(PARTITIONS):
                balances = read_balances(cluster.bootstrap, topic, partition)
                if not balances:
                    continue
                taken += 1
                ledgers.add(tuple(balances[account] for account in sorted(balances)))
                assert len(balances) == ACCOUNTS
                assert sum(balances.values()) == ACCOUNTS * OPENING_BALANCE
            if kills and taken > snapshots // 4:
                kills -= 1
                running.kill(kills % PARTITIONS)
                victim = kills % 3 + 1
                cluster.kill(victim)
                cluster.start([victim])
            assert time.monotonic() - began < 300, running.log()
    assert kills == 0
    assert len(ledgers) > snapshots // 4  # money moved


def test_bank_transfers(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    keep_books(cluster, topic, tmp_path, kills=1, snapshots=6, seconds=0)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_bank_transfers_for_two_minutes(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    keep_books(cluster, topic, tmp_path, kills=10, snapshots=120, seconds=120)


def connection_to(cluster: Cluster, node_id: int, stack: ExitStack) -> RawConnection:
    host, _, port = cluster.nodes[node_id].address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    return RawConnection(stack.enter_context(connection))


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    found: list[int] = []

    def known() -> bool:
        request = Struct(key_type=1, coordinator_keys=[transactional_id])
        (answer,) = cluster.ask_any(FIND_COORDINATOR, 6, request).coordinators
        found[:] = [answer.node_id]
        return not answer.error_code

    cluster.wait_until(known, "a coordinator")
    return found[0]


def test_a_new_coordinator_completes_a_prepared_transaction(cluster: Cluster, topic: str) -> None:
    """
    1. The only replica of the topic is paused, so that no markers can be written.
    2. A transaction is committed: the decision is in the log of its coordinator, which is killed.
    3. The leader is resumed; another coordinator finds the decision and writes the markers.
    """
    coordinator = coordinator_of(cluster, f"id-{topic}")
    leader = coordinator % 3 + 1
    create_on(cluster, topic, [leader])
    with ExitStack() as stack:
        to_coordinator = connection_to(cluster, coordinator, stack)
        producer = ready(to_coordinator, f"id-{topic}")
        producer.connection = connection_to(cluster, leader, stack)
        assert producer.send(topic, "x") is ErrorCode.none
        producer.connection = to_coordinator
        cluster.nodes[leader].pause()
        assert producer.end(commit=True) is ErrorCode.none
        assert state_of(producer) == "PrepareCommit"
        cluster.kill(coordinator)
    cluster.nodes[leader].resume()
    found: list[bytes] = []

    def readable() -> bool:
        with suppress(KafkaException):  # there is no leader yet
            found[:] = [m.value() for m in read_committed(cluster.bootstrap, topic, 0)]
        return bool(found)

    cluster.wait_until(readable, "the record is committed", 60)
    assert found == [b"x"]
    assert coordinator_of(cluster, f"id-{topic}") != coordinator


def create_on(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """A topic of one partition, led by the first of these brokers."""
    request = Struct(
        topics=[
            Struct(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Struct(partition_index=0, broker_ids=replicas)],
                configs=[],
            )
        ],
        timeout=10_000,
        validate_only=False,
    )
    (created,) = cluster.ask_any(CREATE_TOPICS, 7, request).topics
    assert not created.error_code, created.error_message
    cluster.wait_in_sync(topic)


def test_a_new_leader_knows_the_open_transaction(cluster: Cluster, topic: str) -> None:
    """The last stable offset and the end of a transaction are right on the next leader."""
    coordinator = coordinator_of(cluster, f"id-{topic}")
    leader = coordinator % 3 + 1
    create_on(cluster, topic, [leader, coordinator, leader % 3 + 1])
    with ExitStack() as stack:
        to_coordinator = connection_to(cluster, coordinator, stack)
        producer = ready(to_coordinator, f"id-{topic}")
        producer.connection = connection_to(cluster, leader, stack)
        assert producer.send(topic, "aborted") is ErrorCode.none
        plain = Producer({"bootstrap.servers": cluster.bootstrap})
        plain.produce(topic, "plain", partition=0)
        assert plain.flush(30) == 0
        assert read_committed(cluster.bootstrap, topic, 0) == []
        cluster.kill(leader)
        cluster.wait_until(lambda: cluster.leader(topic, 0) not in (leader, -1), "a new leader")
        assert read_committed(cluster.bootstrap, topic, 0) == []
        producer.connection = to_coordinator
        assert producer.end(commit=False) is ErrorCode.none

    def plain_is_read() -> bool:
        found = [m.value() for m in read_committed(cluster.bootstrap, topic, 0)]
        assert b"aborted" not in found
        return found == [b"plain"]

    cluster.wait_until(plain_is_read, "the record behind the transaction")
