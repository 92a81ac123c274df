"""Settings that lose data do lose data here, which proves that the checker can find it.

1  acks=1: the leader acknowledges alone, its follower is paused
2  the leader dies, the follower is resumed: it is not in the ISR, but unclean election is on
3  it leads, and acknowledged records that only the dead leader had are lost
"""

from __future__ import annotations

import pytest

from broker_tests.admin.test_admin_server import samples
from broker_tests.cluster.conftest import StartCluster
from odradek_testkit.checker import kinds
from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load

UNSAFE = {
    "acks": "1",
    "enable.idempotence": False,
    "socket.timeout.ms": 2_000,
    "request.timeout.ms": 2_000,
}


def unclean_elections(cluster: Cluster) -> float:
    """Since the start of the brokers that run: the active controller counts them."""
    name = "kafka_controller_controllerstats_uncleanleaderelections_total"
    return sum(samples(node)[name, frozenset()] for node in cluster.running())


@pytest.mark.long
def test_acks_1_with_unclean_election_loses_data(start_cluster: StartCluster, topic: str) -> None:
    cluster = start_cluster(3, {"replica.lag.time.max.ms": "1000"})
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    cluster.create_topic(topic, partitions=1, replication_factor=2, config=config)
    partition = cluster.partitions(topic)[0]
    leader = partition.leader_id
    (follower,) = (r for r in partition.replica_nodes if r != leader)
    with Load(cluster, topic, partitions=1, settings=UNSAFE) as load:
        load.wait_for_acks(300)
        cluster.nodes[follower].pause()
        cluster.wait_until(lambda: cluster.partitions(topic)[0].isr_nodes == [leader])
        load.wait_for_acks(300)
        cluster.kill(leader)
        cluster.nodes[follower].resume()
        cluster.wait_until(lambda: cluster.leader(topic, 0) == follower, "an unclean leader", 60)
        load.wait_for_acks(300)
    assert unclean_elections(cluster) == 1
    cluster.start([leader])
    cluster.wait_in_sync(topic)
    found = load.anomalies()
    print(f"\n{len(found)} anomalies: {sorted(kinds(found))}")
    assert {"lost-write", "inconsistent-offsets"} & kinds(found)


@pytest.mark.long
def test_without_unclean_election_the_partition_waits(
    start_cluster: StartCluster, topic: str
) -> None:
    """The same faults at the default: no leader until the replica with all the data is back."""
    cluster = start_cluster(3, {"replica.lag.time.max.ms": "1000"})
    cluster.create_topic(topic, partitions=1, replication_factor=2)
    partition = cluster.partitions(topic)[0]
    leader = partition.leader_id
    (follower,) = (r for r in partition.replica_nodes if r != leader)
    with Load(cluster, topic, partitions=1) as load:
        load.wait_for_acks(300)
        cluster.nodes[follower].pause()
        cluster.wait_until(lambda: cluster.partitions(topic)[0].isr_nodes == [leader])
        load.wait_for_acks(300)
        cluster.kill(leader)
        cluster.nodes[follower].resume()
        cluster.wait_until(lambda: cluster.leader(topic, 0) == -1, "no leader")
        cluster.start([leader])
        cluster.wait_in_sync(topic)
        load.wait_for_acks(300)
    load.check()
