"""`kafka-transactions find-hanging` on three brokers: each is asked about all of its replicas.

A transaction hangs if its records are in a partition and its coordinator does not know of it.
Brokers verify that before they write, so the tests here turn the verification off.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_tests.cluster.conftest import StartCluster
from broker_tests.handlers.parity_requests import Step, create
from broker_tests.handlers.parity_requests import topic as new_topic
from broker_tests.handlers.test_admin_parity import client
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.records import BatchProducer, Record, build_batch
from odradek_testkit.clients import wait_until
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import RunningBroker, kafka_tool

PRODUCE, DESCRIBE_PRODUCERS = 0, 61
PRODUCE_VERSION = 11  # the last of clients that add partitions to their transaction themselves
PRODUCER_ID = 424_242
HOUR_MS = 3_600_000  # longer than the longest transaction timeout, so find-hanging looks at it
DEADLINE_S = 30.0
# A broker learns of a new topic before it has opened the partitions that it leads.
NOT_LED_YET = (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition)


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
        producer=BatchProducer(PRODUCER_ID, 3, 0),
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

    def written() -> bool:
        leader = cluster.leader(topic, partition)
        answer = cluster.ask(leader, PRODUCE, PRODUCE_VERSION, request)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        assert code in (ErrorCode.none, *NOT_LED_YET), code
        return code is ErrorCode.none

    cluster.wait_until(written)


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

    def is_described(replica: int) -> bool:
        return bool(described(replica))

    for replica in replicas:
        cluster.wait_until(partial(is_described, replica))
        assert described(replica) == [(PRODUCER_ID, 3, 0, 0)]
    missing = {
        ErrorCode.not_leader_or_follower: describe(cluster, other, topic, 0),
        ErrorCode.unknown_topic_or_partition: describe(cluster, other, topic, 1),
        ErrorCode.invalid_topic_exception: describe(cluster, other, "a/b", 0),
    }
    assert {code: int(answer.error_code) for code, answer in missing.items()} == {
        code: int(code) for code in missing
    }


def test_a_replica_in_an_offline_directory_is_refused(tmp_path: Path) -> None:
    """1. a broker has a partition in each of two directories; 2. one directory is deleted; 3. its
    replica is refused, the other is described."""
    paths = [tmp_path / "data-1", tmp_path / "data-2"]
    settings = {"log.dirs": ",".join(map(str, paths))}
    with RunningBroker(settings, directory=tmp_path / "broker") as broker, client(broker) as asked:
        asked.ask(create("a topic", new_topic("a", 2)))

        def codes() -> dict[int, int]:
            wanted = [Struct(name="a", partition_indexes=[0, 1])]
            answer = asked.ask(Step("", DESCRIBE_PRODUCERS, 0, Struct(topics=wanted)))
            found = answer["topics"][0]["partitions"]
            return {one["partition_index"]: one["error_code"] for one in found}

        wait_until(lambda: codes() == {0: 0, 1: 0})
        (gone,) = {path for path in paths if (path / "a-1").exists()}
        if (gone / "__cluster_metadata-0").exists():
            gone = next(path for path in paths if path != gone)
        lost = 0 if (gone / "a-0").exists() else 1
        shutil.rmtree(gone)
        wait_until(lambda: codes() == {lost: ErrorCode.kafka_storage_error, 1 - lost: 0})
        broker.kill()


@pytest.mark.java
def test_find_hanging_on_followers(cluster: Cluster, topic: str) -> None:
    """1. one transaction is open and known to its coordinator, another is not; 2. both followers
    report the second only; 3. it is aborted by hand, and no longer reported."""

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
