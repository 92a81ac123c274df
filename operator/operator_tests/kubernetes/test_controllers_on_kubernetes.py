"""Dedicated controllers on a real API server: created, rolled, repaired, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek_api.base import RESTART_ANNOTATION
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World
from operator_tests.kubernetes.worker_support import found, quiet, uids

APART: dict[str, Any] = {
    "engine": "apache",
    "brokers": 3,
    "controllers": {"replicas": 3, "storage": {"size": "2Gi"}},
    "networkPolicy": {"enabled": True},
}
CONTROLLERS = [f"main-controllers-zone-{rack}-0" for rack in "abc"]
BROKERS = [f"main-zone-{rack}-0" for rack in "abc"]


@pytest.fixture
def world(kubernetes: ControlPlane, namespace: str) -> Iterator[World]:
    made = World(kubernetes, namespace)
    made.cluster(**APART)
    made.topic("orders", partitions=3, replicationFactor=3)
    made.settle()
    yield made
    made.close()


def test_created_rolled_and_repaired(world: World) -> None:
    assert sorted(uids(world)) == sorted(CONTROLLERS + BROKERS)
    status = world.status()
    assert status["formation"] == [10_000, 10_001, 10_002]
    assert [(c["id"], c["rack"], c["ready"]) for c in status["controllers"]] == [
        (10_000, "zone-a", True), (10_001, "zone-b", True), (10_002, "zone-c", True),
    ]  # fmt: skip
    assert [b["id"] for b in status["brokers"]] == [0, 1, 2]
    sizes = {name: one["spec"]["resources"]["requests"]["storage"]
             for name, one in found(world, "pvc").items()}  # fmt: skip
    assert sizes == {f"data-0-{pod}": "2Gi" for pod in CONTROLLERS} | {
        f"data-0-{pod}": "10Gi" for pod in BROKERS
    }
    # No Service selects controllers, and a drain evicts one controller and one broker at a time.
    services = found(world, "service")
    assert services["main-bootstrap"]["spec"]["selector"]["odradek.dev/role"] == "broker"
    assert sorted(found(world, "pdb")) == ["main-brokers", "main-controllers"]
    file = found(world, "configmap").popitem()[1]["data"][f"{CONTROLLERS[0]}.properties"]
    assert "process.roles=controller\n" in file
    quiet(world)

    before = uids(world)
    world.cluster({RESTART_ANNOTATION: "now"}, **APART)
    world.settle()
    assert not set(before.values()) & set(uids(world).values())
    writes = [w.split("/")[-2] for w in world.wire.writes if w.endswith("/eviction")]
    order = list(dict.fromkeys(writes))
    assert sorted(order[:3]) == CONTROLLERS
    assert order[2] == CONTROLLERS[0], "the active controller is last of its kind"
    assert sorted(order[3:]) == BROKERS
    assert world.leftovers() == []

    before = uids(world)
    own = ("-n", world.namespace, "--cascade=orphan")
    world.kubernetes.kubectl("delete", "statefulset", "main-controllers-zone-b", *own)
    world.settle()
    assert uids(world) == before, "a StatefulSet that is gone comes back, with its pod"
    world.kubernetes.kubectl("delete", "pod", CONTROLLERS[2], "-n", world.namespace, "--wait=false")
    world.settle()
    assert {n for n, uid in uids(world).items() if before[n] != uid} == {CONTROLLERS[2]}
    world.operator()
    quiet(world)


def test_volumes_of_a_cluster_whose_brokers_voted(kubernetes: ControlPlane, namespace: str) -> None:
    """Deleted with its volumes kept, then created with dedicated controllers: it is unchanged."""
    world = World(kubernetes, namespace)
    world.cluster(engine="apache", brokers=3)
    world.settle()
    kubernetes.kubectl("delete", "kc", "main", "-n", namespace)
    world.settle()
    world.cluster(**APART)
    world.settle()
    assert sorted(uids(world)) == BROKERS
    assert world.condition("Degraded") == "True Refused"
    world.close()
