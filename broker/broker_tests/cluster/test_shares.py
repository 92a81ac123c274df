"""Share groups on three brokers that fail: kill -9 and SIGSTOP of leaders and of the coordinator.

Each acknowledged record is accepted, none twice by a leader that follows, and the locks of members
and leaders that are gone are freed. The members are KafkaShareConsumers, unmodified.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import KafkaError, Message, Producer

from broker_tests.cluster.conftest import StartCluster
from broker_tests.cluster.share_workers import ShareWorkers
from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ResourceType,
    alter_configs,
)
from odradek_protocol.client.admin.share_groups import start_offsets
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_testkit.cluster import Cluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

GROUP = "workers"
STATE = "__share_group_state"
PARTITIONS = 3
MEMBERS = 3
DELIVERIES = 10
ENOUGH = 150  # confirmed acknowledgements that show that everything goes on
STALL_S = 180.0
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",  # so that there is one coordinator
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "50",
    "offsets.topic.num.partitions": "1",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.max.delivery.count.limit": str(DELIVERIES),
    "group.share.delivery.count.limit": str(DELIVERIES),
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@contextmanager
def producing(cluster: Cluster, topic: str) -> Iterator[list[str]]:
    """Produces until the block ends; the acknowledged values."""
    acknowledged: list[str] = []
    ending = threading.Event()
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True,
        "linger.ms": 20, "log_level": 2,
    })  # fmt: skip

    def noted(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            acknowledged.append(value.decode())

    def produce() -> None:
        number = 0
        while not ending.wait(0.02):
            for _ in range(3):
                producer.produce(topic, f"{number:06d}", on_delivery=noted)
                number += 1
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield acknowledged
    finally:
        ending.set()
        thread.join()
        assert producer.flush(120) == 0


def led_by_another(cluster: Cluster, name: str, than: int) -> bool:
    return cluster.leader(name, 0) not in (than, -1)


def lags(cluster: Cluster, topic: str) -> list[int | None]:
    with KafkaClient(cluster.bootstrap) as client:
        found = start_offsets(client, GROUP)
    return [getattr(one, "lag", None) for place, one in found.items() if place.topic == topic]


@pytest.mark.long
# Three JVMs and three brokers go through six kinds of faults: 95 s on a busy machine.
def test_each_record_is_accepted_although_brokers_fail(
    start_cluster: StartCluster, topic: str
) -> None:
    """1. kill -9 of a leader. 2. of the share coordinator. 3. of a member with records in hand.
    4. SIGSTOP of a leader until another one leads; it wakes up. 5. The same with the share
    coordinator. 6. kill -9 of all brokers at once."""
    cluster = start_cluster(3, SETTINGS)
    cluster.create_topic(topic, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    with KafkaClient(cluster.bootstrap) as client:
        earliest = [ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")]
        alter_configs(client, ResourceType.GROUP, {GROUP: earliest})
    workers = ShareWorkers(cluster, topic, GROUP, MEMBERS)
    try:
        with producing(cluster, topic) as acknowledged:

            def goes_on(what: str) -> None:
                before = len(workers.done)
                cluster.wait_until(lambda: len(workers.done) >= before + ENOUGH, what, STALL_S)

            goes_on("the first records accepted")
            for name in (topic, STATE):
                leader = cluster.leader(name, 0)
                cluster.kill(leader)
                goes_on(f"after kill -9 of the leader of {name}")
                cluster.start([leader])
                cluster.wait_in_sync(name)
                cluster.wait_in_sync(topic)
            workers.kill_one()
            goes_on("after kill -9 of a member")
            for name in (topic, STATE):
                leader = cluster.leader(name, 0)
                cluster.nodes[leader].pause()
                cluster.wait_until(partial(led_by_another, cluster, name, leader))
                goes_on(f"without the leader of {name}, which is stopped")
                cluster.nodes[leader].resume()
                cluster.wait_in_sync(name)
                cluster.wait_in_sync(topic)
                goes_on(f"after the leader of {name} woke up")
            cluster.kill()
            cluster.start()
            goes_on("after kill -9 of all brokers")
        done = [0] * PARTITIONS
        cluster.wait_until(lambda: lags(cluster, topic) == done, "every record is done", STALL_S)
    finally:
        workers.stop()
    print(
        f"{len(acknowledged)} records, {len(workers.done)} confirmed, "
        f"{workers.delivered.total()} deliveries, at most "
        f"{workers.most_deliveries} of one; commits refused: {dict(workers.refused)}; "
        f"delivered again after they were done: {len(workers.again)}"
    )
    lost = set(acknowledged) - workers.asked
    assert not lost, f"done, but never accepted: {sorted(lost)[:10]}"
    assert workers.most_deliveries <= DELIVERIES
    assert not workers.again, workers.again[:10]
