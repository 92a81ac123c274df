"""ISRs shrink and expand, and how that affects acks=all."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from broker_tests.cluster.conftest import StartCluster
from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load


def followers(cluster: Cluster, topic: str) -> list[int]:
    partition = cluster.partitions(topic)[0]
    return [replica for replica in partition.replica_nodes if replica != partition.leader_id]


def test_a_follower_that_lags_leaves_and_returns(start_cluster: StartCluster, topic: str) -> None:
    """Paused for less than its session: only the leader notices (replica.lag.time.max.ms)."""
    cluster = start_cluster(3, {"replica.lag.time.max.ms": "1500",
                                "broker.session.timeout.ms": "20000"})  # fmt: skip
    cluster.create_topic(topic, partitions=1)
    slow = followers(cluster, topic)[0]
    with Load(cluster, topic, partitions=1, per_second=300) as load:
        load.wait_for_acks(100)
        cluster.nodes[slow].pause()
        took = cluster.wait_until(lambda: slow not in cluster.partitions(topic)[0].isr_nodes)
        print(f"\nleft the ISR after {took:.2f} s")
        load.wait_for_acks(100)
        cluster.nodes[slow].resume()
        cluster.wait_in_sync(topic)
    load.check()


@pytest.mark.long
def test_min_insync_replicas_refuses(cluster: Cluster, topic: str) -> None:
    """With one of three alive and min.insync.replicas=2, acks=all is not acknowledged."""
    cluster.create_topic(topic, partitions=1, config={"min.insync.replicas": "2"})
    dead = [f for f in followers(cluster, topic) if f != cluster.controller()]
    if len(dead) == 2:  # keep a quorum: one voter dies, the other follower is paused
        dead = dead[:1]
    sleepy = next(f for f in followers(cluster, topic) if f not in dead)
    assert produce_error(cluster, topic, acks="all") is None
    cluster.kill(*dead)
    cluster.wait_until(lambda: len(cluster.partitions(topic)[0].isr_nodes) == 2)
    assert produce_error(cluster, topic, acks="all") is None
    cluster.nodes[sleepy].pause()
    refused = produce_error(cluster, topic, acks="all")
    # Two of three voters are silent, so the leader has no controller: it closes the connection.
    assert refused in ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "_MSG_TIMED_OUT",
                       "REQUEST_TIMED_OUT", "_TRANSPORT")  # fmt: skip
    cluster.nodes[sleepy].resume()
    cluster.start(dead)
    cluster.wait_in_sync(topic)
    assert produce_error(cluster, topic, acks="all") is None


def produce_error(cluster: Cluster, topic: str, acks: str) -> str | None:
    """One record without retries; the name of the error, if any."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "retries": 0,
            "message.timeout.ms": 8_000,
            "log_level": 2,
        }
    )
    errors: list[str | None] = []
    producer.produce(
        topic, b"0", partition=0,
        on_delivery=lambda error, _: errors.append(error.name() if error else None),
    )  # fmt: skip
    producer.flush(12)
    assert errors, "neither acknowledged nor refused"
    return errors[0]
