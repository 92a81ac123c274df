"""How librdkafka's idempotent producer duplicates a record: under a new epoch.

1. the record "once" is appended, and its answer is lost with the connection: it is sent again later
2. in another topic a batch is refused (too few replicas in sync), while the next one is under way
3. that one arrives when batches are accepted again: its sequence number is out of order
4. librdkafka gives all partitions a new epoch, and sends "once" under it: no broker can know it

With one request in flight there is no step 3 between two requests of a connection. Java's producer
keeps its epoch in step 3. Rolling restarts have 1. and 2. by nature, and 3. on a busy machine.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from odradek_testkit.clients import consume, value_of
from odradek_testkit.cluster_network import PartitionedCluster

CLIENT = "the-producer"
REFUSING, LOSING = 1, 2  # brokers: the one that refuses, and the one whose answer is lost
FOLLOWER = 3
METRIC = 'kafka_server_brokertopicmetrics_failedproducerequests_total{topic="refused"}'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PartitionedCluster]:
    with PartitionedCluster(3, tmp_path / "cluster") as cluster:
        yield cluster


def min_isr(admin: AdminClient, count: int) -> None:
    entry = ConfigEntry(
        "min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET
    )
    topic = ConfigResource(ConfigResource.Type.TOPIC, "refused", incremental_configs=[entry])
    admin.incremental_alter_configs([topic])[topic].result(60)


def end_of_log(admin: AdminClient, topic: str) -> int:
    place = TopicPartition(topic, 0)
    return int(admin.list_offsets({place: OffsetSpec.latest()})[place].result(60).offset)


def values(cluster: PartitionedCluster, admin: AdminClient, topic: str) -> list[bytes]:
    found = consume(cluster.nodes[LOSING], topic, end_of_log(admin, topic))
    return [value_of(message) for message in found]


def refused(cluster: PartitionedCluster) -> bool:
    address = cluster.nodes[REFUSING].admin
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return any(line.startswith(METRIC) and float(line.split()[1]) > 0 for line in lines)


@pytest.mark.long  # a broker is killed, and the client waits before it connects again
def test_a_lost_answer_and_an_overtaken_refusal(cluster: PartitionedCluster) -> None:
    """If this fails, librdkafka has changed: docs/how-to/security-kubernetes.md says it does."""
    network, admin = cluster.network, cluster.admin()
    new = [
        NewTopic("refused", num_partitions=1, replica_assignment=[[REFUSING, FOLLOWER]]),
        NewTopic("once", num_partitions=1, replica_assignment=[[LOSING]]),
    ]
    for made in admin.create_topics(new).values():
        made.result(60)
    sent: dict[str, int] = {}  # broker → how many Produce requests the client has sent to it

    def count(statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            sent[str(broker["nodeid"])] = broker["req"].get("Produce", 0)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap, "client.id": CLIENT, "linger.ms": 0,
            "enable.idempotence": True, "log_level": 2, "statistics.interval.ms": 50,
            "stats_cb": count,
        }
    )  # fmt: skip

    def requests(broker: int) -> int:
        producer.poll(0)
        return sent.get(str(broker), 0)

    for topic in ("refused", "once"):
        producer.produce(topic, b"first")
    assert producer.flush(60) == 0

    network.disturb(LOSING, "mute", CLIENT)
    producer.produce("once", b"once")
    cluster.wait_until(lambda: end_of_log(admin, "once") == 2, "it is appended")
    network.disturb(LOSING, "cut", CLIENT)

    min_isr(admin, 2)
    cluster.kill(FOLLOWER)
    cluster.wait_until(lambda: [*cluster.partitions("refused")[0].isr_nodes] == [REFUSING])
    network.disturb(REFUSING, "mute", CLIENT)
    producer.produce("refused", b"second")
    cluster.wait_until(lambda: refused(cluster), "the first batch is refused")
    before = requests(REFUSING)
    network.disturb(REFUSING, "block", CLIENT)
    producer.produce("refused", b"third")
    cluster.wait_until(lambda: requests(REFUSING) > before, "the next one is under way")
    min_isr(admin, 1)
    network.restore(REFUSING)
    cluster.wait_until(lambda: values(cluster, admin, "refused") == [b"first", b"second", b"third"])
    network.restore(LOSING)
    assert producer.flush(60) == 0
    assert values(cluster, admin, "once") == [b"first", b"once", b"once"]
