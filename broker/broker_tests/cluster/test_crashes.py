"""kill -9 under load: no acknowledged record is lost, duplicated or out of order.

The brokers can write nothing more; the kernel's page cache survives, as it does when
a container is killed.
"""

from __future__ import annotations

import itertools
import time

import pytest

from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load

CONFIG = {"min.insync.replicas": "2"}
ENOUGH = 300  # acknowledgements after a fault that show that writes continue


def test_the_leader_dies(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic) as load:
        load.wait_for_acks(ENOUGH)
        leader = cluster.leader(topic, 0)
        cluster.kill(leader)
        load.wait_for_every_partition()
        assert cluster.leader(topic, 0) != leader
        cluster.start([leader])
        cluster.wait_in_sync(topic)
        load.wait_for_every_partition()
    load.check()


def test_the_controller_dies(cluster: Cluster, topic: str) -> None:
    """Another voter takes over: topics can be created again."""
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic) as load:
        load.wait_for_acks(ENOUGH)
        controller = cluster.controller()
        epoch = cluster.quorum().leader_epoch
        cluster.kill(controller)
        load.wait_for_every_partition()
        assert cluster.controller() != controller
        assert cluster.quorum().leader_epoch > epoch
        cluster.create_topic(topic + "-2", replication_factor=2)
        cluster.start([controller])
        cluster.wait_in_sync(topic)
        load.wait_for_every_partition()
    load.check()
    assert cluster.quorum(of=controller).leader_id == cluster.controller()


@pytest.mark.long
def test_a_follower_dies(cluster: Cluster, topic: str) -> None:
    """The leader continues with the rest of the ISR; the restarted follower catches up."""
    cluster.create_topic(topic, partitions=1, config=CONFIG)
    with Load(cluster, topic, partitions=1) as load:
        load.wait_for_acks(ENOUGH)
        partition = cluster.partitions(topic)[0]
        follower = next(r for r in partition.replica_nodes if r != partition.leader_id)
        cluster.kill(follower)
        load.wait_for_acks(ENOUGH)
        cluster.wait_until(lambda: follower not in cluster.partitions(topic)[0].isr_nodes)
        assert cluster.leader(topic, 0) == partition.leader_id
        cluster.start([follower])
        cluster.wait_in_sync(topic)
    load.check()


def test_all_die(cluster: Cluster, topic: str) -> None:
    """A cold start after kill -9 of everything: the same cluster, the same records."""
    cluster.create_topic(topic, config=CONFIG)
    with Load(cluster, topic) as load:
        load.wait_for_acks(ENOUGH)
        cluster.kill()
        cluster.start()
        load.wait_for_every_partition()
        cluster.wait_in_sync(topic)
    load.check()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_leader_dies_again_and_again(cluster: Cluster, topic: str) -> None:
    """How long produce is not possible after kill -9 of the leader, at the default settings."""
    cluster.create_topic(topic, partitions=1, config=CONFIG)
    outages = []
    with Load(cluster, topic, partitions=1, per_second=500) as load:
        for _ in range(9):
            load.wait_for_acks(ENOUGH)
            leader = cluster.leader(topic, 0)
            killed_at = time.monotonic()
            cluster.kill(leader)
            load.wait_for_every_partition()
            outages.append(longest_silence(load, killed_at))
            cluster.start([leader])
            cluster.wait_in_sync(topic)
    acked = load.check()
    median = sorted(outages)[len(outages) // 2]
    print(f"\n{acked} acknowledged writes, outages {[round(o, 2) for o in sorted(outages)]} s")
    print(f"median outage after kill -9 of the leader: {median:.2f} s")
    assert median < 3.0


def longest_silence(load: Load, since_s: float) -> float:
    """The longest time between two acknowledgements after that moment."""
    times = sorted(w.done_at_s for w in load.history.acked() if w.done_at_s >= since_s - 0.5)
    return max(b - a for a, b in itertools.pairwise(times))
