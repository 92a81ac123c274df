"""Groups in a cluster: their coordinator dies, and no committed offset is lost."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from broker_tests.cluster.conftest import StartCluster
from odradek_broker.coordinator.hashing import partition_for
from odradek_protocol.messages.struct import Struct
from odradek_testkit.cluster import Cluster

TOPIC, GROUP, PARTITIONS, RECORDS = "events", "readers", 6, 3000
OFFSETS = "__consumer_offsets"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": "4",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
DEADLINE_S = 90.0
LIST_GROUPS = 16


class Member(threading.Thread):
    """Reads, and commits what it has read; remembers the highest commit that was acknowledged."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._servers = cluster.bootstrap
        self.seen: set[int] = set()
        self.committed: dict[int, int] = {}
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self.failure = failure

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            messages = [m for m in consumer.consume(50, timeout=0.2) if m.error() is None]
            if not messages:
                continue
            self.seen |= {int(m.value() or b"") for m in messages}
            ends: dict[int, int] = {}
            for message in messages:
                ends[message.partition() or 0] = (message.offset() or 0) + 1
            asked = [TopicPartition(TOPIC, p, offset) for p, offset in ends.items()]
            try:
                for done in consumer.commit(offsets=asked, asynchronous=False):
                    if done.error is None:
                        self.committed[done.partition] = done.offset
            except KafkaException:
                pass  # the coordinator moves, or there was a rebalance: read again
        consumer.close()


def test_the_coordinator_is_killed_while_the_group_consumes(start_cluster: StartCluster) -> None:
    """1. Two members read and commit; a producer goes on. 2. The leader of the group's partition
    of __consumer_offsets is killed. 3. Everything is read, and no acknowledged commit is lost.
    4. The killed broker comes back: the group is still known, with the same offsets."""
    cluster = start_cluster(3, SETTINGS)
    cluster.create_topic(TOPIC, PARTITIONS)
    members = [Member(cluster, f"member-{n}") for n in range(2)]
    for member in members:
        member.start()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(RECORDS // 2):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    producer.flush(DEADLINE_S)
    cluster.wait_until(lambda: any(member.committed for member in members), "a commit", DEADLINE_S)
    at = partition_for(GROUP, 4)
    coordinator = cluster.leader(OFFSETS, at)
    assert len(cluster.partitions(OFFSETS)[at].replica_nodes) == 3  # by default
    before = {p: o for member in members for p, o in member.committed.items()}
    cluster.kill(coordinator)

    for number in range(RECORDS // 2, RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0

    ends = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)

    def all_read_and_committed() -> bool:
        for member in members:
            assert member.failure is None, member.failure
        seen = set().union(*(member.seen for member in members))
        return len(seen) == RECORDS and committed(cluster) == dict.fromkeys(
            range(PARTITIONS), RECORDS // PARTITIONS
        )

    cluster.wait_until(all_read_and_committed, "all read and committed", DEADLINE_S)
    for partition, offset in before.items():
        assert committed(cluster)[partition] >= offset
    assert cluster.leader(OFFSETS, at) != coordinator

    cluster.start([coordinator])
    cluster.wait_until(lambda: cluster.all_in_sync(OFFSETS), "in sync again", DEADLINE_S)
    assert committed(cluster) == ends
    for member in members:
        member.stopping.set()
    for member in members:
        member.join(DEADLINE_S)
        assert not member.is_alive()
        assert member.failure is None, member.failure
    # Each broker lists what it coordinates, and together they have the group once.
    listed = [
        group.group_id
        for node in cluster.nodes
        for group in cluster.ask(node, LIST_GROUPS, 5, Struct()).groups
    ]
    assert listed.count(GROUP) == 1


def committed(cluster: Cluster) -> dict[int, int]:
    """The committed offset as a client outside of the group sees it."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})
    asked = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    try:
        found = consumer.committed(asked, timeout=20)
        return {one.partition: one.offset for one in found if one.error is None}
    except KafkaException:
        return {}
    finally:
        consumer.close()


# A member in a process of its own, to be killed: it takes partitions and never commits.
CRASHING = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "log_level": 0})
consumer.subscribe([sys.argv[3]], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.2)
"""


def wait_for_another_coordinator(cluster: Cluster, gone: int) -> None:
    cluster.wait_until(
        lambda: cluster.leader(OFFSETS, partition_for(GROUP, 4)) != gone,
        "another coordinator",
        DEADLINE_S,
    )


def crash_a_member(cluster: Cluster) -> None:
    """Joins, gets partitions, and is killed with kill -9."""
    command = [sys.executable, "-c", CRASHING, cluster.bootstrap, GROUP, TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"assigned\n"
        process.kill()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_members_come_crash_and_go(start_cluster: StartCluster) -> None:
    """Members join, leave and crash without leaving, and a broker is killed now and then.
    Everything that was produced is read, and the committed offsets end where the log does."""
    cluster = start_cluster(3, {**SETTINGS, "group.min.session.timeout.ms": "1000"})
    cluster.create_topic(TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    seen: set[int] = set()
    number = 0
    members = [Member(cluster, f"member-{n}") for n in range(3)]
    for member in members:
        member.start()
    for round_number in range(6):
        for _ in range(500):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            producer.poll(0)
            number += 1
        assert producer.flush(DEADLINE_S) == 0
        leaving = members.pop(0)
        leaving.stopping.set()
        leaving.join(DEADLINE_S)
        seen |= leaving.seen
        members.append(Member(cluster, f"late-{round_number}"))
        members[-1].start()
        crash_a_member(cluster)
        if round_number % 3 == 1:
            victim = cluster.leader(OFFSETS, partition_for(GROUP, 4))
            cluster.kill(victim)
            wait_for_another_coordinator(cluster, victim)
            cluster.start([victim])
    expected = set(range(number))
    cluster.wait_until(
        lambda: seen.union(*(member.seen for member in members)) == expected,
        "everything read",
        2 * DEADLINE_S,
    )
    ends = {p: len(range(p, number, PARTITIONS)) for p in range(PARTITIONS)}
    cluster.wait_until(lambda: committed(cluster) == ends, "everything committed", DEADLINE_S)
    for member in members:
        member.stopping.set()
    for member in members:
        member.join(DEADLINE_S)
        assert member.failure is None, member.failure
