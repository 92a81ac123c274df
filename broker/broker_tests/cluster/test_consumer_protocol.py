"""Groups of the consumer protocol in a cluster: a coordinator dies, members keep what they have."""

from __future__ import annotations

import re
import urllib.request

from confluent_kafka import Producer

from broker_tests.clients.members import Member, shared, until
from broker_tests.cluster.conftest import StartCluster
from odradek_broker.coordinator.hashing import partition_for
from odradek_testkit.cluster import Cluster

TOPIC, FAR, GROUP = "events", "far", "readers"
OFFSETS_PARTITIONS = 4
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def lag_of(cluster: Cluster, group: str, topic: str) -> float | None:
    """The value in /metrics of the running brokers; None if no broker reports it."""
    found = []
    for node in cluster.running():
        with urllib.request.urlopen(f"http://{node.admin}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        line = rf'kafka_consumergroup_lag_sum{{consumergroup="{group}",topic="{topic}"}} (.*)'
        found += [float(value) for value in re.findall(line, text)]
    return sum(found) if found else None


def produce(cluster: Cluster, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(60) == 0


def position(members: list[Member]) -> int:
    """Their progress, together. Records read are no measure: partitions that one hands over
    before it has committed are read again by the other."""
    places = [p for m in members for p in m.consumer.position(m.consumer.assignment())]
    return sum(max(place.offset, 0) for place in places)


def test_the_coordinator_dies(start_cluster: StartCluster) -> None:
    """1. Two members share 4 partitions. 2. Their coordinator is killed. 3. Both keep exactly what
    they had, in the same epoch, and commit. 4. A third joins at the new coordinator."""
    cluster = start_cluster(3, SETTINGS)
    cluster.create_topic(TOPIC, partitions=4, replication_factor=3)
    cluster.create_topic(FAR, partitions=3, replication_factor=1)
    produce(cluster, TOPIC, 200, 4)
    members = [Member(cluster, GROUP, client_id=name).subscribe(TOPIC) for name in "ab"]
    until(shared(4, *members), *members, what="two members")
    until(lambda: position(members) == 200, *members, what="all read")
    for member in members:
        member.consumer.commit(asynchronous=False)
    had = [member.owned() for member in members]

    far = Member(cluster, f"{GROUP}-far").subscribe(FAR)
    produce(cluster, FAR, 30, 3)
    until(lambda: len(far.read) == 30, far, what="the far topic")
    far.consumer.commit(asynchronous=False)
    produce(cluster, FAR, 9, 3)
    # Its partitions have one replica each, so the coordinator asks other brokers about two of them.
    until(lambda: lag_of(cluster, f"{GROUP}-far", FAR) == 9, what="lag of partitions elsewhere")
    far.close()

    coordinator = cluster.leader("__consumer_offsets", partition_for(GROUP, OFFSETS_PARTITIONS))
    cluster.kill(coordinator)
    produce(cluster, TOPIC, 100, 4)
    until(lambda: position(members) == 300, *members, what="read on")
    assert [member.owned() for member in members] == had, "nobody had to give anything back"
    for member in members:
        member.consumer.commit(asynchronous=False)
    assert lag_of(cluster, GROUP, TOPIC) == 0
    members.append(Member(cluster, GROUP, client_id="c").subscribe(TOPIC))
    until(shared(4, *members), *members, what="a third")
    for member in members:
        member.close()
