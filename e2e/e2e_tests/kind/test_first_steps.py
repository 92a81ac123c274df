"""Install, apply, inspect, produce and consume: the first hour of a user."""

from __future__ import annotations

import pytest

from e2e_tests.kind.inside import run_inside
from e2e_tests.kind.story import Story
from odradek_e2e.chart import helm
from odradek_e2e.kind.places import ZONES, kubeconfig
from odradek_testkit.kubernetes.client import ObjectClient, RequestFailedError


def test_helm_test_says_that_one_of_two_replicas_works(
    objects: ObjectClient, operator: str
) -> None:
    said = helm("test", "odradek", f"--namespace={operator}", "--timeout=3m",
                kubeconfig=kubeconfig())  # fmt: skip
    assert "Phase:          Succeeded" in said, said
    pods = objects.find("Pod", operator, "app.kubernetes.io/component!=test")
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    assert len(pods) == len(nodes) == 2, "two replicas on two nodes"


def test_three_zones_and_clients_inside_and_outside(story: Story) -> None:
    story.cluster()
    story.topic("orders", partitions=6, replicationFactor=3)
    status = story.settle()
    placed = {name: story.zones()[pod["spec"]["nodeName"]] for name, pod in story.pods().items()}
    assert sorted(placed.values()) == list(ZONES)
    assert {one["rack"] for one in status["brokers"]} == set(ZONES)
    # The brokers' own metadata, from inside: racks, and the placement of replicas.
    seen = run_inside(story, "describe", "orders")
    racks = {one["id"]: one["rack"] for one in seen["brokers"]}
    assert set(racks.values()) == set(ZONES)
    assert len(seen["partitions"]) == 6
    for partition in seen["partitions"]:
        assert {racks[b] for b in partition["replicas"]} == set(ZONES), partition
        assert partition["isr"] == partition["replicas"]
    # 500 records from inside, then 500 more from outside; each side reads them all.
    assert run_inside(story, "roundtrip", "orders", "500") == {"sent": 500, "read": 500}
    with story.load("orders") as load:
        load.wait_for_acks(500)
    offsets = {(w.partition, w.offset) for w in load.history.acked()}
    assert len(offsets) == load.acked
    assert run_inside(story, "count", "orders")["records"] == 500 + load.acked


def test_kubectl_as_a_person(story: Story) -> None:
    story.cluster()
    story.topic("orders", partitions=3)
    story.settle()
    columns, row = story.kubectl("get", "kc").splitlines()
    assert columns.split() == [
        "NAME", "ENGINE", "BROKERS", "READYBROKERS", "READY", "DISKPRESSURE", "ROLLING", "AGE",
    ]  # fmt: skip
    assert row.split()[:5] == ["main", "embedded", "3", "3", "True"]
    row = story.kubectl("get", "kt").splitlines()[1]
    assert row.split()[:6] == ["orders", "main", "orders", "3", "3", "True"]
    said = story.kubectl("describe", "kafkacluster", "main")
    for wanted in ("Bootstrap Servers:", "do not exist yet", "RackAware"):
        assert wanted in said, said
    together = story.kubectl("get", "kafka")
    assert "kafkacluster.odradek.dev/main" in together
    assert "topic.odradek.dev/orders" in together


def test_invalid_manifests_are_refused_with_a_sentence(story: Story) -> None:
    story.cluster(brokers=1)
    story.settle()
    with pytest.raises(RequestFailedError, match="must not exceed the number of"):
        story.change(replication={"factor": 3})
