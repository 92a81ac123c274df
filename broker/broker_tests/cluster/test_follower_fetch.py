"""Consumers read from the replica in their own rack (KIP-392), also when that broker dies."""

from __future__ import annotations

import re
import urllib.request

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from broker_tests.cluster.conftest import StartCluster
from odradek_testkit.cluster import Cluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RECORDS = 400
DEADLINE_S = 30


def bytes_out(cluster: Cluster, node_id: int, topic: str) -> float:
    url = f"http://{cluster.nodes[node_id].admin}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    found = re.search(rf'^{name}\{{topic="{topic}"\}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), timeout=DEADLINE_S)
        assert messages, f"{len(values)} of {count} records"
        for message in messages:
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    return values


def test_the_replica_in_the_same_rack_serves(start_cluster: StartCluster, topic: str) -> None:
    """1. a consumer in a follower's rack reads from that follower and not from the leader;
    2. the follower dies: the consumer continues at the leader and misses nothing."""
    cluster = start_cluster(3, {"replica.selector.class": SELECTOR})
    cluster.create_topic(topic, partitions=1)
    leader = cluster.leader(topic, 0)
    follower = next(node_id for node_id in cluster.nodes if node_id != leader)
    rack = "abc"[follower - 1]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 2})
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "client.rack": rack,
            "log_level": 2,
        }
    )
    try:
        sent = [b"%06d" % number + bytes(500) for number in range(2 * RECORDS)]
        for value in sent[:RECORDS]:
            producer.produce(topic, value, partition=0)
        assert producer.flush(DEADLINE_S) == 0
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert read(consumer, RECORDS) == sent[:RECORDS]
        assert bytes_out(cluster, follower, topic) >= 500 * RECORDS
        assert bytes_out(cluster, leader, topic) == 0

        cluster.kill(follower)
        for value in sent[RECORDS:]:
            producer.produce(topic, value, partition=0)
        assert producer.flush(DEADLINE_S) == 0
        assert read(consumer, RECORDS) == sent[RECORDS:]
        assert bytes_out(cluster, leader, topic) > 0
    finally:
        consumer.close()
