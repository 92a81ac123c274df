"""The objects of a cluster on a real API server: accepted, restricted, placed into their racks."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from odradek_api.base import owner_reference
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.manifests import manifests
from odradek_operator.kubernetes.racks import Rack
from odradek_testkit.kubernetes.control_plane import ControlPlane
from operator_tests.worlds import cluster

PATIENCE_S = 90.0


def objects(desired: DesiredCluster, owner_uid: str) -> list[dict[str, Any]]:
    racks = {}
    for name in desired.racks:
        ids = tuple(b.id for b in desired.brokers.values() if b.rack == name)
        racks[name] = Rack(name, ids, len(ids))
    files = {
        names.pod_name(desired.name, rack.name, ordinal): f"node.id={broker}\n"
        for rack in racks.values()
        for ordinal, broker in enumerate(rack.ids)
    }
    owner = owner_reference("odradek.dev/v1alpha1", "KafkaCluster", desired.name, owner_uid)
    return manifests(desired, racks, files, owner, "odradek/broker:test")


def eventually(look: Callable[[], Any], wanted: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{seen!r} instead of {wanted!r}"
        time.sleep(0.1)


@pytest.fixture
def placed(kubernetes: ControlPlane, namespace: str) -> Iterator[tuple[DesiredCluster, str]]:
    """A cluster of six in three zones, and the namespace, which enforces the restricted profile."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubernetes.kubectl("label", "namespace", namespace, label)
    external = {"external": {"type": "NodePort"}}
    made = cluster(brokers=6, listeners=external, networkPolicy={"enabled": True})
    desired = replace(made, namespace=namespace)
    resource = {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "KafkaCluster",
        "metadata": {"name": "main", "namespace": namespace},
        "spec": {"brokers": 6},
    }
    kubernetes.apply(resource)
    path = "jsonpath={.metadata.uid}"
    uid = kubernetes.kubectl("get", "kc", "main", "-n", namespace, "-o", path)
    nodes = {zone: f"{namespace[:20]}-{zone}" for zone in desired.racks}
    for zone, node in nodes.items():  # the nodes of the fixture are in zone-a, zone-b, zone-c
        kubernetes.add_node(node, zone=zone)
    kubernetes.apply(*objects(desired, uid))
    yield desired, namespace
    kubernetes.kubectl("delete", "node", *nodes.values())  # they would be racks for other tests


def test_pods_go_to_the_nodes_of_their_rack(
    kubernetes: ControlPlane, placed: tuple[DesiredCluster, str]
) -> None:
    _, namespace = placed

    def zones() -> dict[str, str]:
        pods = json.loads(kubernetes.kubectl("get", "pods", "-n", namespace, "-o", "json"))
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")[-1:] for pod in pods["items"]
        }

    # No pod is scheduled without its volume, and there is no provisioner here.
    wanted = {f"main-{rack}-{n}": rack for rack in "abc" for n in range(2)}
    kubernetes.apply(*_volumes(list(wanted), namespace))
    eventually(zones, wanted)


def _volumes(pods: list[str], namespace: str) -> list[dict[str, Any]]:
    """A volume for each claim, bound to it: claims of other tests wait for volumes, too."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace[:30]}-{n}"},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": f"/nowhere/{n}"},
                "claimRef": {"namespace": namespace, "name": names.claim_name(0, pod)},
            },
        }
        for n, pod in enumerate(pods)
    ]


def test_applying_again_changes_nothing(
    kubernetes: ControlPlane, placed: tuple[DesiredCluster, str]
) -> None:
    desired, namespace = placed
    kinds = "statefulset,service,configmap,pdb,networkpolicy,serviceaccount"

    def versions() -> dict[str, str]:
        found = json.loads(kubernetes.kubectl("get", kinds, "-n", namespace, "-o", "json"))
        return {
            f"{one['kind']}/{one['metadata']['name']}": one["metadata"].get("generation", 0)
            for one in found["items"]
            if names.CLUSTER_LABEL in one["metadata"].get("labels", {})
        }

    before = versions()
    assert len(before) == 3 + (2 + 6) + 1 + 1 + 1 + 1  # sets, services, config, pdb, policy, sa
    uid = kubernetes.kubectl("get", "kc", "main", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    kubernetes.apply(*objects(desired, uid))
    assert versions() == before


def test_names_of_odd_racks() -> None:
    assert names.rack_slug("eu-west-1a") == "eu-west-1a"
    assert names.rack_slug("") == "all"
    odd = {
        names.rack_slug(rack) for rack in ("Zone A", "zone a", "zone_a", "ZONE-A", "zone-a", "🙂")
    }
    assert len(odd) == 6
    long = names.statefulset_name("c" * 50, "r" * 60)
    assert len(long) <= names.NAME_MAX
    assert long != names.statefulset_name("c" * 50, "r" * 61)
