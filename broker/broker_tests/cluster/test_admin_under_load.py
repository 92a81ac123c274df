"""Administration while traffic runs: replicas move, topics go while a broker is away."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaAdminClient, TopicPartition

from broker_tests.cluster.conftest import StartCluster
from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load

CONFIG = {"min.insync.replicas": "2"}


def reassign(cluster: Cluster, moves: dict[tuple[str, int], list[int]]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        answers = admin.alter_partition_reassignments(
            {TopicPartition(*place): replicas for place, replicas in moves.items()}
        )
        assert not any(answers.values()), answers
    finally:
        admin.close()


def moved(cluster: Cluster, moves: dict[tuple[str, int], list[int]]) -> bool:
    return all(
        cluster.partitions(topic)[number].replica_nodes == replicas
        and sorted(cluster.partitions(topic)[number].isr_nodes) == sorted(replicas)
        for (topic, number), replicas in moves.items()
    )


@pytest.mark.long
def test_replicas_move_under_load(start_cluster: StartCluster, topic: str) -> None:
    """Every partition from three brokers to two others and one of them; leaders move too."""
    cluster = start_cluster(5)
    cluster.create_topic(topic, config=CONFIG)
    moves = {}
    for number, partition in cluster.partitions(topic).items():
        old = list(partition.replica_nodes)
        new = [node_id for node_id in cluster.nodes if node_id not in old]
        moves[topic, number] = [*new, old[number % 3]]
    with Load(cluster, topic) as load:
        load.wait_for_acks(1_000)
        began = time.monotonic()
        reassign(cluster, moves)
        cluster.wait_until(lambda: moved(cluster, moves), "all replicas moved")
        print(f"\nmoved 3 partitions in {time.monotonic() - began:.1f} s")
        load.wait_for_every_partition()
    load.check()
    assert [write.error for write in load.history.errors()] == []
    gone = {
        node_id: [p.name for p in cluster.nodes[node_id].data_dir.glob(f"{topic}-*")]
        for node_id in cluster.nodes
    }
    for (_, number), replicas in moves.items():
        for node_id in set(cluster.nodes) - set(replicas):
            left = [name for name in gone[node_id] if name == f"{topic}-{number}"]
            assert not left, f"broker {node_id} keeps {left}"


def test_a_topic_is_deleted_while_a_broker_is_down(cluster: Cluster, topic: str) -> None:
    """Its files on that broker go when it is back, and a new topic of that name is a new topic."""
    cluster.create_topic(topic)
    with Load(cluster, topic) as load:
        load.wait_for_acks(300)
    away = next(node_id for node_id in cluster.nodes if node_id != cluster.controller())
    cluster.kill(away)
    cluster.delete_topic(topic)
    cluster.wait_until(lambda: topic not in {t.name for t in cluster.metadata().topics})
    old_files = list(cluster.nodes[away].data_dir.glob(f"{topic}-?"))
    assert len(old_files) == 3
    cluster.start([away])
    cluster.wait_until(
        lambda: not list(cluster.nodes[away].data_dir.glob(f"{topic}-?")), "old files gone"
    )
    cluster.create_topic(topic)
    with Load(cluster, topic) as again:
        again.wait_for_acks(300)
    again.check()
    assert min(write.offset for write in again.history.acked()) == 0


@pytest.mark.long
def test_a_topic_is_replaced_while_a_broker_is_down(cluster: Cluster, topic: str) -> None:
    """The name is taken by a new topic before the broker with the old files is back."""
    cluster.create_topic(topic)
    with Load(cluster, topic) as load:
        load.wait_for_acks(300)
    away = next(node_id for node_id in cluster.nodes if node_id != cluster.controller())
    cluster.kill(away)
    cluster.delete_topic(topic)
    cluster.wait_until(lambda: topic not in {t.name for t in cluster.metadata().topics})
    cluster.create_topic(topic, replication_factor=2)
    with Load(cluster, topic) as again:
        again.wait_for_acks(300)
        cluster.start([away])
        again.wait_for_acks(300)
        partitions = cluster.partitions(topic)
        moves = {
            (topic, number): [away, *(r for r in p.replica_nodes if r != away)]
            for number, p in partitions.items()
        }
        reassign(cluster, moves)
        cluster.wait_until(lambda: moved(cluster, moves), "replicas on the broker that was away")
    again.check()
