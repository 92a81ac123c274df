"""Faults of real clusters: lost pods and nodes, objects deleted by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e_tests.kind.story import CLUSTER, KubectlError, Story, kubectl
from e2e_tests.kind.test_rolls import begin


def test_a_killed_broker_comes_back_with_its_data(story: Story) -> None:
    """kill -9 of a pod, then the end of another with its volume kept."""
    begin(story)
    with story.load("orders") as load:
        for name in ("main-zone-a-0", "main-zone-b-0"):
            delete_until_it_is_back(story, "Pod", name, force=True)
            story.settle()
    print(story.judge(load))


def test_a_lost_volume_is_filled_again(story: Story) -> None:
    """Claim and pod are deleted: the broker comes back without data and catches up."""
    begin(story)
    with story.load("orders") as load:
        pod, claim = "main-zone-c-0", "data-0-main-zone-c-0"
        before = story.uid("PersistentVolumeClaim", claim)
        load.wait_for_acks(200)
        story.delete("PersistentVolumeClaim", claim)
        story.delete_and_wait("Pod", pod)
        story.wait_until(
            lambda: story.uid("PersistentVolumeClaim", claim) not in ("", before), "a new claim"
        )
        story.settle()
    print(story.judge(load))


def test_a_drained_node_takes_one_broker_at_a_time(story: Story) -> None:
    """Two nodes are drained at once; the budget allows one eviction and refuses the other."""
    begin(story)
    first, second = (story.pods()[f"main-zone-{z}-0"]["spec"]["nodeName"] for z in "ab")
    with story.load("orders") as load, uncordoned(story, first, second):
        drain(first, story.namespace)
        story.wait_until(lambda: not ready(story, "main-zone-a-0"), "the broker is away")
        with pytest.raises(KubectlError, match=r"disruption budget|timed out|timeout"):
            drain(second, story.namespace, seconds=20)
        assert ready(story, "main-zone-b-0")
        # Its zone has no other node: the status says so, and the broker is not placed elsewhere.
        story.wait_until(lambda: said(story, "zone-a", "broker 0"), "the status says which")
        assert story.pods()["main-zone-a-0"]["spec"].get("nodeName") is None
        load.wait_for_acks(200)
        story.cordon(first, on=False)
        story.cordon(second, on=False)
        story.settle()
    print(story.judge(load))


def test_a_broker_of_a_cordoned_zone_stays_pending_and_is_reported(story: Story) -> None:
    """Growing to six with zone c cordoned: its new broker stays Pending, and the status says so."""
    begin(story)
    (node,) = [node for node, zone in story.zones().items() if zone == "zone-c"]
    with uncordoned(story, node):
        story.cordon(node)
        story.change(brokers=6)
        story.wait_until(lambda: story.status().get("readyBrokers") == 5, "five of six")
        waiting = story.pods()["main-zone-c-1"]
        assert waiting["status"]["phase"] == "Pending"
        ready = next(c for c in story.status()["conditions"] if c["type"] == "Ready")
        assert ready["status"] == "False"
        assert "5" in ready["message"], ready
        story.cordon(node, on=False)
        story.settle()
    assert {p["spec"]["nodeName"] for n, p in story.pods().items() if "zone-c" in n} == {node}


def test_deleted_objects_are_created_again(story: Story) -> None:
    """StatefulSet (with and without its pods), Services, ConfigMap, budget: repaired."""
    begin(story)
    before = story.uids()
    with story.load("orders") as load:
        delete_until_it_is_back(story, "StatefulSet", "main-zone-a", orphan=True)
        for kind, name in (("Service", "main-bootstrap"), ("Service", "main-brokers"),
                           ("PodDisruptionBudget", "main-brokers")):  # fmt: skip
            delete_until_it_is_back(story, kind, name)
        (config,) = story.find("ConfigMap", f"odradek.dev/cluster={CLUSTER}")
        delete_until_it_is_back(story, "ConfigMap", config["metadata"]["name"])
        story.settle()
        assert story.uids() == before, "no broker was restarted for any of that"
        # With its pods: the broker is unavailable for a while, and comes back with the same id.
        delete_until_it_is_back(story, "StatefulSet", "main-zone-b")
        uid = before["main-zone-b-0"]
        story.wait_until(lambda: story.uids().get("main-zone-b-0", uid) != uid, "a new pod")
        status = story.settle()
        assert sorted(one["id"] for one in status["brokers"]) == [0, 1, 2]
    print(story.judge(load))


def delete_until_it_is_back(
    story: Story, kind: str, name: str, *, force: bool = False, orphan: bool = False
) -> None:
    """Deletes an object and waits until another one has its name."""
    old = story.uid(kind, name)
    story.delete(kind, name, force=force, orphan=orphan)
    story.wait_until(lambda: story.uid(kind, name) not in ("", old), f"{kind} {name} is back")


def ready(story: Story, name: str) -> bool:
    pod = story.pods().get(name) or {"status": {}}
    found = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    return found.get("Ready") == "True"


def said(story: Story, *words: str) -> bool:
    text = json.dumps(story.status())
    return all(word in text for word in words)


def drain(node: str, namespace: str, seconds: int = 120) -> None:
    """Evicts only the pods of the story's cluster; the parts of Kubernetes stay."""
    kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data",
            f"--pod-selector=odradek.dev/cluster={CLUSTER}", f"--timeout={seconds}s")  # fmt: skip


@contextmanager
def uncordoned(story: Story, *nodes: str) -> Iterator[None]:
    try:
        yield
    finally:
        for node in nodes:
            story.cordon(node, on=False)
