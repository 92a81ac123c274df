"""Scaling brokers, volumes and replication factors; deleting clusters."""

from __future__ import annotations

from functools import partial

from e2e_tests.kind.inside import run_inside
from e2e_tests.kind.story import CLUSTER, Story
from e2e_tests.kind.test_rolls import begin


def test_three_to_six_to_three(story: Story) -> None:
    begin(story, rebalance="auto")
    with story.load("orders") as load:
        story.change(brokers=6)
        story.wait_until(lambda: len(story.uids()) == 6, "six pods")
        story.settle()
        assert {b for p in story.partitions("orders") for b in p["replicas"]} == set(range(6))
        story.change(brokers=3)
        story.wait_until(lambda: len(story.uids()) == 3, "three pods")
        status = story.settle()
        assert sorted(one["id"] for one in status["brokers"]) == [0, 1, 2]
        assert {b for p in story.partitions("orders") for b in p["replicas"]} == {0, 1, 2}
    print(story.judge(load))
    story.wait_until(lambda: len(claims(story)) == 3, "the volumes of those that left are gone")


def test_the_replication_factor_of_a_topic(story: Story) -> None:
    story.cluster()
    story.topic("orders", partitions=6, replicationFactor=1)
    story.settle()
    assert {len(p["replicas"]) for p in story.partitions("orders")} == {1}
    with story.load("orders") as load:
        for factor in (3, 2):
            story.patch("Topic", "orders", {"spec": {"replicationFactor": factor}})
            in_sync = partial(every_partition_has, story, factor)
            story.wait_until(in_sync, f"replication factor {factor}")
            story.settle()
    print(story.judge(load))
    assert story.get("Topic", "orders")["status"]["replicationFactor"] == 2


def test_storage_that_cannot_grow_is_reported(story: Story) -> None:
    """kind's provisioner does not support expansion; the rest of the reconciliation goes on."""
    begin(story)
    before = story.uids()
    story.change(storage={"size": "2Gi"})
    story.wait_until(lambda: any("cannot be expanded" in e for e in story.events()), "an Event")
    story.settle()
    assert sizes(story) == {"1Gi"}
    assert story.uids() == before, "nobody is restarted for it"


def test_storage_that_may_grow(story: Story) -> None:
    """With a class that allows expansion the claims request more, and no broker restarts.

    The volumes themselves do not grow here: local-path volumes are directories.
    """
    name = f"grows-{story.namespace}"
    story.objects.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "rancher.io/local-path",
            "allowVolumeExpansion": True,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    try:
        begin(story, storage={"size": "1Gi", "class": name, "deletionPolicy": "Delete"})
        before = story.uids()
        story.change(storage={"size": "2Gi"})
        story.wait_until(lambda: sizes(story) == {"2Gi"}, "the claims ask for 2 GiB")
        story.settle()
        assert story.uids() == before, "no broker is restarted for it"
        templates = [s["spec"]["volumeClaimTemplates"][0] for s in story.find("StatefulSet")]
        assert {t["spec"]["resources"]["requests"]["storage"] for t in templates} == {"2Gi"}
    finally:
        story.objects.delete("StorageClass", name)


def test_delete_and_keep_the_volumes_then_come_back(story: Story) -> None:
    begin(story, storage={"size": "1Gi", "deletionPolicy": "Retain"})
    assert run_inside(story, "roundtrip", "orders", "200") == {"sent": 200, "read": 200}
    cluster_id = story.status()["clusterId"]
    story.delete_and_wait("KafkaCluster", CLUSTER)
    story.wait_until(lambda: not story.pods(), "no pod is left")
    assert len(claims(story)) == 3
    assert not story.find("StatefulSet")
    begin(story, storage={"size": "1Gi", "deletionPolicy": "Retain"})
    assert story.status()["clusterId"] == cluster_id
    assert run_inside(story, "count", "orders")["records"] == 200


def test_delete_with_the_volumes(story: Story) -> None:
    begin(story)
    story.topic("kept", partitions=1, deletionPolicy="Retain")
    story.settle()
    for topic, left in (("orders", False), ("kept", True)):
        story.delete_and_wait("Topic", topic)
        assert (topic in story.topics()) is left, topic
    story.delete_and_wait("KafkaCluster", CLUSTER)
    story.wait_until(lambda: not story.pods() and not claims(story), "no pod, no volume is left")
    story.wait_until(lambda: not left_of_the_cluster(story), "nothing of the cluster is left")


def every_partition_has(story: Story, factor: int) -> bool:
    return {len(p["isr"]) for p in story.partitions("orders")} == {factor}


def left_of_the_cluster(story: Story) -> list[str]:
    kinds = ("Service", "ConfigMap", "StatefulSet", "PodDisruptionBudget")
    found = [one for kind in kinds for one in story.find(kind, f"odradek.dev/cluster={CLUSTER}")]
    return [one["metadata"]["name"] for one in found]


def claims(story: Story) -> list[str]:
    return [one["metadata"]["name"] for one in story.find("PersistentVolumeClaim")]


def sizes(story: Story) -> set[str]:
    return {
        one["spec"]["resources"]["requests"]["storage"]
        for one in story.find("PersistentVolumeClaim")
    }
