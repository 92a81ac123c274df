"""The settings of each broker, for both engines; which settings stay when the cluster changes."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any

from odradek_operator.kafka.apache import FORMAT, directory_id
from odradek_operator.kafka.desired import DISCOVERY_SETTINGS, DesiredCluster, Known
from operator_tests.worlds import cluster


def later(before: DesiredCluster, **spec: Any) -> DesiredCluster:
    existing = {b.id: b.rack for b in before.brokers.values()}
    return cluster(Known(existing, {}, before.formation, "id"), **spec)


def changed(before: DesiredCluster, after: DesiredCluster, broker: int) -> set[str]:
    old, new = before.brokers[broker].settings, after.brokers[broker].settings
    return {n for n in {*old, *new} if old.get(n) != new.get(n)} - DISCOVERY_SETTINGS


def test_our_broker() -> None:
    settings = cluster(brokers=4).brokers[0].properties
    assert settings["controller.quorum.voters"] == "0@main-0:9092,1@main-1:9092,2@main-2:9092"
    assert settings["broker.rack"] == "a"
    assert settings["odradek.cluster.id"] == "id"
    assert (settings["default.replication.factor"], settings["min.insync.replicas"]) == ("3", "2")
    joins = cluster(brokers=4).brokers[3].properties
    assert "controller.quorum.voters" not in joins
    assert joins["controller.quorum.bootstrap.servers"].split(",")[0] == "main-0:9092"


def test_one_broker_is_a_cluster_too() -> None:
    settings = cluster(brokers=1).brokers[0].properties
    assert settings["default.replication.factor"] == settings["min.insync.replicas"] == "1"


def test_brokers_more_or_fewer_restart_nobody() -> None:
    six = cluster(brokers=6)
    for count in (3, 7):
        after = later(six, brokers=count)
        assert [changed(six, after, b) for b in (0, 1, 2)] == [set(), set(), set()]


def test_apache_kafka() -> None:
    desired = cluster(brokers=4, engine="apache")
    votes, observes = desired.brokers[0], desired.brokers[3]
    assert votes.properties["process.roles"] == "broker,controller"
    assert observes.properties["process.roles"] == "broker"
    assert votes.properties["listeners"].endswith(",CONTROLLER://:9093")
    assert "CONTROLLER" not in observes.properties["listeners"]
    assert votes.settings[FORMAT].startswith("--initial-controllers 0@main-0:9093:")
    assert observes.settings[FORMAT] == "--no-initial-controllers"
    assert not any(name.startswith(("odradek.", "@")) for name in votes.properties)
    after = later(desired, brokers=6, engine="apache")
    assert [changed(desired, after, b) for b in range(4)] == [set()] * 4


def test_dedicated_controllers() -> None:
    desired = cluster(brokers=2, engine="apache", controllers={"replicas": 3})
    controller, broker = desired.controllers[10_001], desired.brokers[0]
    assert controller.properties["process.roles"] == "controller"
    assert controller.properties["listeners"] == "CONTROLLER://:9093"
    assert controller.properties["advertised.listeners"] == "CONTROLLER://main-10001:9093"
    assert controller.properties["log.dirs"] == "/data/0"
    assert "inter.broker.listener.name" not in controller.properties
    voters = controller.settings[FORMAT].removeprefix("--initial-controllers ").split(",")
    assert [one.partition(":")[0] for one in voters] == [
        "10000@main-10000", "10001@main-10001", "10002@main-10002",
    ]  # fmt: skip
    assert broker.properties["process.roles"] == "broker"
    assert broker.properties["listeners"] == "PLAINTEXT://:9092"
    assert broker.settings[FORMAT] == "--no-initial-controllers"
    servers = "main-10000:9093,main-10001:9093,main-10002:9093"
    assert broker.properties["controller.quorum.bootstrap.servers"] == servers
    assert desired.bootstrap == "main-0:9092,main-1:9092"
    # Topics without these settings get the controller's defaults.
    assert controller.properties["default.replication.factor"] == "2"
    patience = {"initial.broker.registration.timeout.ms": 1000}
    impatient = cluster(engine="apache", controllers={}, config=patience).brokers[0]
    assert impatient.properties["initial.broker.registration.timeout.ms"] == "1000"


def test_directory_ids_are_sixteen_bytes_and_stay() -> None:
    ids = {directory_id("id", broker) for broker in range(100)}
    assert len(ids) == 100
    assert all(len(urlsafe_b64decode(found + "==")) == 16 for found in ids)
    assert directory_id("id", 1) == directory_id("id", 1) != directory_id("other", 1)
