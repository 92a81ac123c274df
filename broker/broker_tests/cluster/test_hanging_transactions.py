"""`kafka-transactions find-hanging` on three brokers: each is asked about all of its replicas.

A transaction hangs if its records are in a partition and its coordinator does not know of it.
Brokers verify that before they write, so the tests here turn the verification off.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from broker_tests.cluster.conftest import StartCluster
from broker_tests.cluster.harness import Cluster
from broker_tests.harness import kafka_tool
from odradek_broker.model.errors import ErrorCode
from odradek_broker.wire.records import Record, build_batch
from odradek_broker.wire.struct import Struct

PRODUCE, DESCRIBE_PRODUCERS = 0, 61
PRODUCE_VERSION = 11  # the last of clients that add partitions to their transaction themselves
PRODUCER_ID = 424_242
HOUR_MS = 3_600_000  # longer than the longest transaction timeout, so find-hanging looks at it
DEADLINE_S = 30.0


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    return start_cluster(3, {"transaction.partition.verification.enable": "false"})


def describe(cluster: Cluster, node_id: int, topic: str, partition: int) -> Struct:
    asked = [Struct(name=topic, partition_indexes=[partition])]
    answer = cluster.ask(node_id, DESCRIBE_PRODUCERS, 0, Struct(topics=asked))
    found: Struct = answer.topics[0].partitions[0]
    return found


def write_unknown_to_the_coordinator(cluster: Cluster, topic: str, partition: int) -> None:
    """A first batch of a transaction, from a producer that skips AddPartitionsToTxn."""
    batch = build_batch(
        [Record(0, int(time.time() * 1000) - HOUR_MS, None, b"hangs")],
        producer_id=PRODUCER_ID,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    request = Struct(
        transactional_id="unknown",
        acks=-1,
        timeout=10_000,
        topic_data=[
            Struct(name=topic, partition_data=[Struct(index=partition, records=batch)]),
        ],
    )
    leader = cluster.leader(topic, partition)
    answer = cluster.ask(leader, PRODUCE, PRODUCE_VERSION, request)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none


def test_every_replica_describes_its_producers(cluster: Cluster, topic: str) -> None:
    """The leader and its followers alike; a broker without a replica says so."""
    cluster.create_topic(topic, partitions=1, replication_factor=2)
    write_unknown_to_the_coordinator(cluster, topic, 0)
    replicas = cluster.partitions(topic)[0].replica_nodes
    (other,) = set(cluster.nodes) - set(replicas)

    def described(node_id: int) -> list[tuple[int, int, int, int]]:
        answer = describe(cluster, node_id, topic, 0)
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
        return [
            (p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
            for p in answer.active_producers
        ]

    for replica in replicas:
        cluster.wait_until(lambda replica=replica: bool(described(replica)))
        assert described(replica) == [(PRODUCER_ID, 3, 0, 0)]
    missing = {
        ErrorCode.not_leader_or_follower: describe(cluster, other, topic, 0),
        ErrorCode.unknown_topic_or_partition: describe(cluster, other, topic, 1),
        ErrorCode.invalid_topic_exception: describe(cluster, other, "a/b", 0),
    }
    assert {code: int(answer.error_code) for code, answer in missing.items()} == {
        code: int(code) for code in missing
    }


@pytest.mark.java
def test_find_hanging_on_followers(cluster: Cluster, topic: str) -> None:
    """1. one transaction is open and well, another is unknown to its coordinator; 2. both followers
    report the second only; 3. it is aborted by hand, and is reported no more."""

    def transactions(*args: str) -> str:
        command = "org.apache.kafka.tools.TransactionsCommand"
        return kafka_tool(command, "--bootstrap-server", cluster.bootstrap, *args).stdout

    def hanging(node_id: int) -> list[list[str]]:
        """Topic, partition, producer id and epoch of each."""
        found = transactions("find-hanging", "--broker-id", str(node_id)).splitlines()
        assert found[0].split()[:4] == ["Topic", "Partition", "ProducerId", "ProducerEpoch"]
        return [line.split()[:4] for line in found[1:]]

    cluster.create_topic(topic, partitions=2)
    settings = {"transactional.id": f"id-{topic}", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2, **settings})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    open_since_ms = int(time.time() * 1000) - HOUR_MS
    producer.produce(topic, b"open", partition=0, timestamp=open_since_ms)
    assert producer.flush(DEADLINE_S) == 0
    write_unknown_to_the_coordinator(cluster, topic, 1)

    leader = cluster.leader(topic, 1)
    followers = [node_id for node_id in cluster.nodes if node_id != leader]
    for node_id in followers:
        assert hanging(node_id) == [[topic, "1", str(PRODUCER_ID), "3"]]
    transactions("abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    assert hanging(followers[0]) == []
    producer.commit_transaction(DEADLINE_S)
