"""Topics as resources: created, adopted, refused, deleted, ignored; finalizers end."""

from collections.abc import Iterator

import pytest

from odradek_operator.kubernetes.objects import FINALIZER, difference
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World


@pytest.fixture
def world(kubernetes: ControlPlane, namespace: str) -> Iterator[World]:
    made = World(kubernetes, namespace)
    made.cluster(brokers=3)
    made.settle()
    yield made
    made.close()


def delete(world: World, kind: str, name: str) -> None:
    world.kubernetes.kubectl("delete", kind, name, "-n", world.namespace, "--wait=false")


def finalizers(world: World, name: str) -> list[str]:
    document = world.get("Topic", name)
    assert document is not None
    return list(document["metadata"].get("finalizers") or ())


def test_a_topic_is_created_changed_and_deleted(world: World) -> None:
    world.topic("orders", partitions=3, replicationFactor=3, config={"retention.ms": 1000})
    world.settle()
    assert world.kafka.topics == {"orders": {"retention.ms": "1000"}}
    status = world.status("Topic", "orders")
    assert (status["partitions"], status["replicationFactor"]) == (3, 3)
    assert status["managed"] is True
    assert status["dynamicConfig"] == ["retention.ms"]
    assert world.condition("Ready", "Topic", "orders") == "True AsDesired"
    assert finalizers(world, "orders") == [FINALIZER]
    world.topic("orders", partitions=6, replicationFactor=3, config={"segment.ms": 9})
    world.settle()
    assert world.kafka.topics == {"orders": {"segment.ms": "9"}}
    assert len(world.kafka.partitions) == 6
    writes = len(world.wire.writes)
    world.one_pass()
    assert len(world.wire.writes) == writes
    delete(world, "topic", "orders")
    world.settle()
    assert world.kafka.topics == {}
    assert world.get("Topic", "orders") is None


def test_retain(world: World) -> None:
    world.topic("kept", partitions=1)
    world.settle()
    world.topic("kept", partitions=1, deletionPolicy="Retain")
    world.settle()
    assert finalizers(world, "kept") == []
    delete(world, "topic", "kept")
    world.settle()
    assert world.get("Topic", "kept") is None
    assert "kept" in world.kafka.topics


def test_adopt_and_conflict(world: World) -> None:
    world.kafka.create_topics(
        {"old": {"num_partitions": 2, "replication_factor": 3, "configs": {"segment.ms": "1"}}}
    )
    world.topic("old")
    world.settle()
    assert world.condition("Ready", "Topic", "old") == "False TopicExists"
    assert finalizers(world, "old") == []
    world.topic("old", adopt=True)
    world.settle()
    assert world.condition("Ready", "Topic", "old") == "True AsDesired"
    assert world.kafka.topics["old"] == {"segment.ms": "1"}  # what the spec does not name stays
    world.topic("rival", name="old", adopt=True)
    world.settle()
    assert world.condition("Ready", "Topic", "rival") == "False NameConflict"
    assert world.condition("Ready", "Topic", "old") == "True NameConflict"  # reported on both
    delete(world, "topic", "rival")
    world.settle()
    assert world.condition("Ready", "Topic", "old") == "True AsDesired"
    assert world.get("Topic", "rival") is None
    assert "old" in world.kafka.topics
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace)
    assert events.count("NameConflict") == 1


def test_a_topic_of_no_cluster(world: World) -> None:
    world.apply("Topic", "lost", {"cluster": {"name": "main"}, "partitions": 1})
    world.settle()
    delete(world, "kafkacluster", "main")
    world.settle()
    assert world.condition("Ready", "Topic", "lost") == "False ClusterMissing"
    delete(world, "topic", "lost")
    world.settle()
    assert world.get("Topic", "lost") is None
    assert "lost" in world.kafka.topics  # nobody was there to delete it from


def test_other_namespaces_have_to_be_listed(kubernetes: ControlPlane, world: World) -> None:
    other = f"{world.namespace[:40]}-guest"
    kubernetes.kubectl("create", "namespace", other)
    guest = {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "guest", "namespace": other},
        "spec": {"cluster": {"name": "main", "namespace": world.namespace}, "partitions": 1},
    }
    kubernetes.apply(guest)
    world.namespaces = [world.namespace, other]
    world.settle()
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}'
    get = ("get", "topic", "guest", "-n", other, "-o", path)
    assert kubernetes.kubectl(*get) == "NotAccepted"
    world.cluster(brokers=3, topicNamespaces=[other])
    world.settle()
    assert kubernetes.kubectl(*get) == "AsDesired"
    assert "guest" in world.kafka.topics


def test_the_patch_of_a_status() -> None:
    before = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2]}
    assert difference(before, before) == {}
    assert difference(before, {"b": {"c": 1}, "e": [1]}) == {"a": None, "b": {"d": None}, "e": [1]}
