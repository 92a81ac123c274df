"""The network between brokers fails, one way or both; clients reach every broker all the time.

So a leader without followers still receives writes, and must not acknowledge records that only it
has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from odradek_testkit.cluster_network import PartitionedCluster
from odradek_testkit.load import Load

CONFIG = {"min.insync.replicas": "2"}
SETTINGS = {"replica.lag.time.max.ms": "2000"}
# librdkafka waits this long for an answer before it looks elsewhere; its default is 60 s.
IMPATIENT = {"socket.timeout.ms": 2_000, "request.timeout.ms": 2_000}
ENOUGH = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PartitionedCluster]:
    with PartitionedCluster(3, tmp_path / "cluster", SETTINGS) as cluster:
        yield cluster


def leader_but_not_controller(cluster: PartitionedCluster, topic: str) -> tuple[int, int]:
    """(partition, its leader)"""
    controller = cluster.controller()
    return next(
        (index, p.leader_id)
        for index, p in cluster.partitions(topic).items()
        if p.leader_id not in (-1, controller)
    )


def view_of_others(cluster: PartitionedCluster, outside: int, topic: str, partition: int) -> int:
    """The leader, as a broker that is not isolated sees it."""
    asked = next(node_id for node_id in cluster.nodes if node_id != outside)
    return cluster.leader_seen_by(asked, topic, partition)


def controller_seen_by(cluster: PartitionedCluster, node_id: int) -> int:
    """-1 while the client waits for an answer of the old controller."""
    try:
        return int(getattr(cluster.quorum(of=node_id), "leader_id", -1))
    except OSError:
        return -1


def test_a_leader_without_the_others(cluster: PartitionedCluster, topic: str) -> None:
    """1. the leader of a partition is cut off from all brokers, but not from clients; 2. another
    broker leads, and writes continue; 3. the network heals, and all logs are equal; then the same
    with the active controller, which leads partitions too."""
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic, settings=IMPATIENT) as load:
        load.wait_for_acks(ENOUGH)
        partition, leader = leader_but_not_controller(cluster, topic)
        cluster.network.isolate(leader)
        cluster.wait_until(
            lambda: view_of_others(cluster, leader, topic, partition) not in (leader, -1)
        )
        load.wait_for_every_partition()
        cluster.network.heal()
        cluster.wait_in_sync(topic)

        controller, epoch = cluster.controller(), cluster.quorum().leader_epoch
        others = [node_id for node_id in cluster.nodes if node_id != controller]
        cluster.network.isolate(controller)
        cluster.wait_until(lambda: controller_seen_by(cluster, others[0]) in others)
        load.wait_for_every_partition()
        cluster.network.heal()
        cluster.wait_until(lambda: controller_seen_by(cluster, controller) in others)
        assert cluster.quorum().leader_epoch > epoch
        cluster.wait_in_sync(topic)
        load.wait_for_every_partition()
    assert load.check() >= ENOUGH


@pytest.mark.long  # as the test above, in the other directions; both together are half a minute
def test_a_link_that_is_cut_in_one_direction(cluster: PartitionedCluster, topic: str) -> None:
    """1. a leader's own requests do not arrive (no heartbeats), but others can fetch from it: it is
    replaced. 2. no broker's requests reach a leader, but its heartbeats arrive: its followers
    leave the ISR, and acks=all is refused until the network heals."""
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic, settings=IMPATIENT) as load:
        load.wait_for_acks(ENOUGH)
        partition, leader = leader_but_not_controller(cluster, topic)
        others = [node_id for node_id in cluster.nodes if node_id != leader]
        for other in others:
            cluster.network.drop_requests(leader, other)
        cluster.wait_until(
            lambda: view_of_others(cluster, leader, topic, partition) not in (leader, -1)
        )
        load.wait_for_every_partition()
        cluster.network.heal()
        cluster.wait_in_sync(topic)

        partition, leader = leader_but_not_controller(cluster, topic)
        others = [node_id for node_id in cluster.nodes if node_id != leader]
        for other in others:
            cluster.network.drop_requests(other, leader)
        cluster.wait_until(lambda: len(cluster.partitions(topic)[partition].isr_nodes) == 1)
        cluster.network.heal()
        cluster.wait_in_sync(topic)
        load.wait_for_every_partition()
    assert load.check() >= ENOUGH


@pytest.mark.long
def test_one_fault_after_another(cluster: PartitionedCluster, topic: str) -> None:
    """Cut between two, answers lost, isolated, one way: at random, with the load on."""
    rng = Random(20260504)
    cluster.create_topic(topic, config=CONFIG)
    network = cluster.network
    with Load(cluster, topic, settings=IMPATIENT) as load:
        for _ in range(10):
            load.wait_for_acks(ENOUGH)
            one, other, third = rng.sample(sorted(cluster.nodes), 3)
            fault = rng.choice(["isolate", "cut", "requests", "answers", "deaf"])
            print(fault, one, other)
            if fault == "isolate":
                network.isolate(one)
            elif fault == "cut":
                network.cut(one, other)
            elif fault == "requests":
                network.drop_requests(one, other)
            elif fault == "answers":
                network.drop_answers(one, other)
            else:
                network.drop_answers(one, other)
                network.drop_answers(one, third)
            load.wait_for_acks(ENOUGH + 1, 20)
            network.heal()
            cluster.wait_in_sync(topic)
        load.wait_for_every_partition()
    assert load.check() >= 10 * ENOUGH
