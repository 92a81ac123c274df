"""Three brokers form a cluster; invalid requests are refused with a reason and change nothing."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from broker_tests.cluster.conftest import StartCluster
from odradek_cli.processes import StartFailedError
from odradek_testkit.cluster import CLUSTER_ID, RACKS, Cluster, ClusterNode
from odradek_testkit.load import Load
from odradek_testkit.ports import free_ports


def test_three_brokers_form_a_cluster(cluster: Cluster, topic: str) -> None:
    described = cluster.metadata()
    assert described.cluster_id == CLUSTER_ID
    assert [(b.node_id, b.rack) for b in described.brokers] == [(1, "a"), (2, "b"), (3, "c")]
    quorum = cluster.quorum()
    assert quorum.leader_id == cluster.controller()
    assert sorted(voter.replica_id for voter in quorum.current_voters) == [1, 2, 3]
    assert {cluster.quorum(of=node_id).leader_id for node_id in cluster.nodes} == {quorum.leader_id}

    cluster.create_topic(topic, partitions=6)
    partitions = cluster.partitions(topic).values()
    assert all(sorted(p.replica_nodes) == [1, 2, 3] for p in partitions)
    assert Counter(p.leader_id for p in partitions) == {1: 2, 2: 2, 3: 2}

    with Load(cluster, topic, partitions=6) as load:
        load.wait_for_acks(2_000)
    assert load.check() >= 2_000
    assert load.history.errors() == []


@pytest.mark.long
def test_no_two_replicas_in_one_rack(start_cluster: StartCluster, topic: str) -> None:
    """Five brokers in racks a b c a b, two of which only observe the quorum."""
    cluster = start_cluster(5)
    cluster.create_topic(topic, partitions=10)
    partitions = cluster.partitions(topic).values()
    rack = {node_id: RACKS[(node_id - 1) % 3] for node_id in cluster.nodes}
    for partition in partitions:
        assert len({rack[r] for r in partition.replica_nodes}) == 3, partition
    assert Counter(p.leader_id for p in partitions) == dict.fromkeys(range(1, 6), 2)
    quorum = cluster.quorum()
    # Only the listed brokers vote, though all five run.
    assert sorted(voter.replica_id for voter in quorum.current_voters) == [1, 2, 3]
    assert len(quorum.observers) == 2
    with Load(cluster, topic, partitions=10) as load:
        load.wait_for_acks(1_000)
    load.check()


def test_invalid_topics_ids_and_clusters_are_refused(cluster: Cluster, topic: str) -> None:
    """More replicas than brokers, brokers that do not exist, ids and clusters mixed up."""
    admin = cluster.admin()
    for new, error in [
        (NewTopic(topic, 1, 4), "INVALID_REPLICATION_FACTOR"),
        (NewTopic(topic, 1, replica_assignment=[[1, 2, 9]]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic(topic, 1, replica_assignment=[[1, 1]]), "INVALID_REPLICA_ASSIGNMENT"),
    ]:
        assert refusal(admin, new) == error
    assert topic not in {t.name for t in cluster.metadata().topics}

    second = stranger(cluster, node_id=2, name="the-same-id")
    with pytest.raises(StartFailedError, match=r"node\.id 2 is in use") as failed:
        second.start(15.0)
    assert failed.value.exit_code == 1

    other = stranger(cluster, node_id=4, name="other-cluster", cluster_id="b3RoZXItY2x1c3Rlci0xMQ")
    with pytest.raises(StartFailedError, match="belongs to another cluster than") as failed:
        other.start(15.0)
    assert failed.value.exit_code == 1
    assert [b.node_id for b in cluster.metadata().brokers] == [1, 2, 3]


def refusal(admin: AdminClient, new: NewTopic) -> str:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([new])[new.topic].result(10)
    return str(refused.value.args[0].name())


def stranger(
    cluster: Cluster, node_id: int, name: str, cluster_id: str = CLUSTER_ID
) -> ClusterNode:
    """Another process that claims to belong to the cluster."""
    (port,) = free_ports(1)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.bootstrap.servers": cluster.bootstrap,
        "odradek.cluster.id": cluster_id,
    }
    return ClusterNode(node_id, settings, cluster.directory / name)


def test_a_voter_whose_metadata_log_was_deleted_says_so(cluster: Cluster, topic: str) -> None:
    """Its directory id is still that of a voter, its votes and records are gone."""
    cluster.create_topic(topic)
    forgetful = next(node for i, node in cluster.nodes.items() if i != cluster.controller())
    cluster.stop(forgetful.node_id)
    memory = forgetful.data_dir / "__cluster_metadata-0"
    kept = memory.rename(memory.with_name("kept"))
    with pytest.raises(StartFailedError) as failed:
        forgetful.start()
    assert "its log or its vote is missing" in str(failed.value)
    assert "remove-controller" in str(failed.value)
    shutil.rmtree(memory, ignore_errors=True)
    kept.rename(memory)
    cluster.start([forgetful.node_id])
    cluster.wait_in_sync(topic)
