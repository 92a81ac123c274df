"""The admin module against real brokers: a cluster of ours, and Apache Kafka."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin
from odradek_operator.admin.log_dirs import ask_log_dirs
from odradek_operator.kafka.observed import ObservedKafka
from odradek_protocol.client import Address, KafkaClient
from odradek_protocol.ids import TopicPartition
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import RunningApacheKafka
from odradek_testkit.ports import free_port

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(4, directory=tmp_path_factory.mktemp("admin")) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(cluster.bootstrap) as connected:
        yield connected


def until(admin: KafkaAdmin, true: Callable[[ObservedKafka], bool]) -> ObservedKafka:
    give_up = time.monotonic() + DEADLINE_S
    while not true(kafka := admin.observe(topic_settings={"retention.ms"})):
        assert time.monotonic() < give_up, kafka
        time.sleep(0.05)
    return kafka


def test_a_cluster_is_described(admin: KafkaAdmin) -> None:
    kafka = until(admin, lambda k: len(k.live) == 4 and len(k.voters) == 3)
    assert kafka.registered == {1: "a", 2: "b", 3: "c", 4: "a"}
    assert kafka.controller in kafka.voters
    assert kafka.lagging_voters == frozenset()
    assert kafka.cluster_id


def test_topics_from_creation_to_deletion(admin: KafkaAdmin) -> None:
    options = {"num_partitions": 3, "replication_factor": 3,
               "configs": {"min.insync.replicas": "2"}}  # fmt: skip
    assert admin.create_topics({"orders": options, "bad": {"replication_factor": 9}}).keys() == {
        "bad"
    }
    assert admin.create_topics({"orders": options}) == {}, "it is there: the same as done"
    assert admin.grow_topics({"orders": 4}) == {}
    assert admin.grow_topics({"orders": 2}) != {}
    kafka = until(
        admin,
        lambda k: (
            sum(p.id.topic == "orders" for p in k.partitions) == 4
            and all(len(p.isr) == 3 for p in k.partitions)
        ),
    )
    assert all(p.min_isr == 2 for p in kafka.partitions)
    assert admin.alter_topic_configs({"orders": {"retention.ms": "1000"}}) == {}
    kafka = until(admin, lambda k: "retention.ms" in k.topics["orders"].config)
    assert kafka.topics["orders"].config["retention.ms"] == "1000"
    assert kafka.topics["orders"].partitions == 4
    refused = admin.alter_topic_configs({"orders": {"retention.ms": "x"}})
    assert "retention.ms" in refused["orders"]
    assert admin.alter_topic_configs({"orders": {"retention.ms": None}}) == {}
    until(admin, lambda k: "retention.ms" not in k.topics["orders"].config)
    assert admin.delete_topics(["orders", "never"]) == {}
    until(admin, lambda k: "orders" not in k.topics)


def test_moves_and_leaders(admin: KafkaAdmin) -> None:
    assert admin.create_topics({"moved": {"num_partitions": 1, "replication_factor": 3}}) == {}
    kafka = until(admin, lambda k: any(p.id.topic == "moved" for p in k.partitions))
    (partition,) = [p for p in kafka.partitions if p.id.topic == "moved"]
    target = (*partition.replicas[1:], *({1, 2, 3, 4} - set(partition.replicas)))
    assert admin.reassign({partition.id: target}) == {}
    until(admin, lambda k: any(p.replicas == target and not p.moving for p in k.partitions))
    assert admin.reassign({partition.id: target[::-1]}) == {}
    until(admin, lambda k: any(p.replicas == target[::-1] for p in k.partitions))
    assert admin.elect([partition.id]) == {}
    until(admin, lambda k: any(p.id == partition.id and p.leader == target[-1]
                               for p in k.partitions))  # fmt: skip
    assert admin.elect([partition.id]) == {}, "not needed is as good as done"
    assert admin.elect([TopicPartition("nowhere", 0)]) != {}
    assert admin.reassign({partition.id: (9,)}) != {}


def test_settings_of_brokers(admin: KafkaAdmin) -> None:
    kafka = admin.observe(settings={"log.cleaner.threads", "node.id"})
    assert not kafka.settings[1]["log.cleaner.threads"].read_only
    assert kafka.settings[1]["node.id"].read_only
    assert admin.alter_broker_configs({"log.cleaner.threads": "2"}) == {}
    for _ in range(200):
        kafka = admin.observe(settings={"log.cleaner.threads"})
        entries = [kafka.settings[b]["log.cleaner.threads"] for b in kafka.live]
        if all(e.value == "2" and e.dynamic for e in entries):
            break
        time.sleep(0.05)
    else:
        pytest.fail(str(entries))
    assert admin.alter_broker_configs({"log.cleaner.threads": None}) == {}
    refused = admin.alter_broker_configs({"log.cleaner.threads": "many"})
    assert "log.cleaner.threads" in refused["all brokers"]


def test_a_broker_leaves_for_good(cluster: Cluster, admin: KafkaAdmin) -> None:
    for topic in list(admin.observe().topics):
        admin.delete_topics([topic])
    assert admin.remove_voter(3) == {}
    until(admin, lambda k: 3 not in k.voters)
    assert admin.remove_voter(3) == {}, "the same as done"
    cluster.stop(3)
    until(admin, lambda k: 3 not in k.live)
    assert admin.unregister(3) == {}
    until(admin, lambda k: 3 not in k.registered)
    assert admin.unregister(3) == {}


def test_log_directories(admin: KafkaAdmin) -> None:
    kafka = admin.observe()
    found = admin.log_sizes().brokers
    assert found.keys() == kafka.registered.keys()
    assert all(found.values())
    assert kafka.log_dirs.keys() == kafka.registered.keys()
    for (directory,) in kafka.log_dirs.values():
        assert not directory.offline
        assert 0 < directory.usable_bytes <= directory.total_bytes


def test_a_broker_that_hangs_is_left_out_and_the_others_are_not() -> None:
    """One broker accepts and never answers, one is down: no call fails or takes long."""
    silent = Address("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as deaf, KafkaClient(str(silent)) as client:
        nobody = {0: Address(*deaf.getsockname()[:2]), 1: silent}
        began = time.monotonic()
        assert ask_log_dirs(client, nobody) == {}
        assert time.monotonic() - began < DEADLINE_S


def test_no_broker_answers() -> None:
    address = f"127.0.0.1:{free_port()}"
    with KafkaAdmin(address) as admin, pytest.raises(AdminError, match="does not answer"):
        admin.observe()


@pytest.mark.java
def test_on_apache_kafka(tmp_path: Path) -> None:
    """The same calls and the same answers on the other engine."""
    overrides = {"broker.rack": "a"}
    with (
        RunningApacheKafka(overrides, directory=tmp_path / "kafka") as broker,
        KafkaAdmin(broker.bootstrap) as admin,
    ):
        kafka = admin.observe(settings={"log.cleaner.threads", "node.id"})
        assert (kafka.controller, kafka.registered, kafka.live) == (1, {1: "a"}, frozenset({1}))
        assert not kafka.settings[1]["log.cleaner.threads"].read_only
        assert kafka.settings[1]["node.id"].read_only
        options = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "7"}}
        assert admin.create_topics({"t": options}) == {}
        assert admin.create_topics({"t": options}) == {}
        assert admin.grow_topics({"t": 3}) == {}
        kafka = until(admin, lambda k: len(k.partitions) == 3)
        assert kafka.topics["t"].config == {"retention.ms": "7"}
        assert admin.elect([TopicPartition("t", 0)]) == {}
        assert admin.reassign({TopicPartition("t", 0): (9,)}) != {}
        assert admin.alter_broker_configs({"log.cleaner.threads": "2"}) == {}
        assert admin.unregister(8) == {}
        assert admin.log_sizes().brokers[1]
        (directory,) = kafka.log_dirs[1]
        assert not directory.offline
        assert 0 < directory.usable_bytes <= directory.total_bytes
        assert admin.delete_topics(["t"]) == {}
        until(admin, lambda k: not k.partitions)
