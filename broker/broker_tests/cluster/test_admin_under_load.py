"""Administration while traffic runs: replicas move, topics are deleted while a broker is down."""

from __future__ import annotations

import time

import confluent_kafka as kafka
import pytest
from confluent_kafka import Consumer, Producer
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


def test_a_replica_is_made_of_a_log_that_starts_in_a_batch(cluster: Cluster, topic: str) -> None:
    """1. one batch of ten records; 2. the first five are deleted, which cuts the batch; 3. a second
    replica is made, which gets the batch as a whole and is in sync; 4. the first broker dies, and
    the new replica has the same five records, also after a restart."""
    cluster.create_topic(topic, partitions=1, replication_factor=1)
    (first,) = cluster.partitions(topic)[0].replica_nodes
    second = next(node_id for node_id in cluster.nodes if node_id != first)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1_000})
    for number in range(10):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0
    place = kafka.TopicPartition(topic, 0, 5)
    admin = cluster.admin()
    admin.delete_records([place])[place].result(60)

    moves = {(topic, 0): [second, first]}
    reassign(cluster, moves)
    cluster.wait_until(lambda: moved(cluster, moves), "the new replica is in sync")
    cluster.kill(first)
    cluster.wait_until(lambda: cluster.leader(topic, 0) == second, "the new replica leads")
    expected = [(number, str(number)) for number in range(5, 10)]
    assert read(cluster, topic) == expected
    cluster.stop(second)  # writes the start of the log down
    cluster.start([first, second])
    cluster.wait_until(lambda: moved(cluster, moves), "both are in sync")
    assert read(cluster, topic) == expected


def read(cluster: Cluster, topic: str) -> list[tuple[int, str]]:
    """Offsets and values of the five records of partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    try:
        consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
        found = consumer.consume(5, timeout=60)
        assert not any(message.error() for message in found)
        return [(m.offset() or 0, (m.value() or b"").decode()) for m in found]
    finally:
        consumer.close()


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


def delete_while_a_broker_is_down(cluster: Cluster, topic: str) -> int:
    """A topic with records; the broker that is down, and still has its files."""
    cluster.create_topic(topic)
    with Load(cluster, topic) as load:
        load.wait_for_acks(300)
    away = next(node_id for node_id in cluster.nodes if node_id != cluster.controller())
    cluster.kill(away)
    cluster.delete_topic(topic)
    cluster.wait_until(lambda: topic not in {t.name for t in cluster.metadata().topics})
    return away


def test_a_topic_is_deleted_while_a_broker_is_down(cluster: Cluster, topic: str) -> None:
    """That broker deletes the files when it is back, and a topic of that name starts empty."""
    away = delete_while_a_broker_is_down(cluster, topic)
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
    away = delete_while_a_broker_is_down(cluster, topic)
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
