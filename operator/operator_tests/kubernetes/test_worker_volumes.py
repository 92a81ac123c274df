"""Passes of the operator on a real API server: volume claims grow, are kept, and are deleted."""

from datetime import UTC, datetime, timedelta
from typing import Any

from odradek_testkit.kubernetes.world import World
from operator_tests.kubernetes.test_manifests import eventually
from operator_tests.kubernetes.worker_support import found, quiet, uids


def test_volumes_grow(world: World) -> None:
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                     "metadata": {"name": world.namespace}, "allowVolumeExpansion": True,
                     "provisioner": "kubernetes.io/no-provisioner"}  # fmt: skip
    claims = [f"data-0-main-zone-{rack}-0" for rack in "abc"]
    world.kubernetes.apply(storage_class, *(volume(world, claim) for claim in claims))
    world.cluster(brokers=3, storage={"size": "1Gi", "class": world.namespace})
    world.settle()
    eventually(lambda: {c["status"]["phase"] for c in found(world, "pvc").values()}, {"Bound"})
    before, sets = uids(world), uids(world, "statefulset")
    world.cluster(brokers=3, storage={"size": "2Gi", "class": world.namespace})
    world.settle()
    grown = {n: c["spec"]["resources"]["requests"] for n, c in found(world, "pvc").items()}
    assert grown == {claim: {"storage": "2Gi"} for claim in claims}
    assert uids(world) == before
    assert not set(sets.values()) & set(uids(world, "statefulset").values())
    quiet(world)


def volume(world: World, claim: str) -> dict[str, Any]:
    """There is no provisioner here, so this creates the volume of one claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{world.namespace}-{claim}"[:60]},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": world.namespace,
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"name": claim, "namespace": world.namespace},
        },
    }


def test_volumes_of_removed_brokers_are_deleted_if_so_wanted(world: World) -> None:
    storage = {"deletionPolicy": "Delete"}
    world.cluster(brokers=6, storage=storage)
    world.settle()
    world.cluster(brokers=3, storage=storage)
    world.settle()
    assert sorted(found(world, "pvc")) == [f"data-0-main-zone-{r}-0" for r in "abc"]
    quiet(world)


def test_a_cluster_comes_back_on_its_volumes(world: World) -> None:
    world.cluster(brokers=3)
    world.settle()
    cluster_id = world.status()["clusterId"]
    claims = uids(world, "pvc")
    annotation = "odradek.dev/cluster-id"
    told = {c["metadata"]["annotations"][annotation] for c in found(world, "pvc").values()}
    world.kubernetes.kubectl("delete", "kafkacluster", "main", "-n", world.namespace)
    world.operator()
    while found(world, "pods,statefulset,configmap,service"):
        world.play()
    world.cluster(brokers=3)
    world.settle()
    assert uids(world, "pvc") == claims
    assert {s["odradek.cluster.id"] for s in world.kafka.up.values()} == told
    assert world.status()["clusterId"] == cluster_id


def test_more_volumes_and_a_file_system_that_grows_at_a_restart(world: World) -> None:
    world.cluster(brokers=3)
    world.settle()
    before = uids(world)
    world.cluster(brokers=3, storage={"volumes": 2})
    world.settle()
    assert len(found(world, "pvc")) == 6
    assert (
        world.kafka.up[1]["log.dirs"] == "/var/lib/odradek/data-0/log,/var/lib/odradek/data-1/log"
    )
    assert not set(uids(world).values()) & set(before.values())
    before = uids(world)
    made = found(world, "pods")["main-zone-b-0"]["metadata"]["creationTimestamp"]
    pending = {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": made}
    claim = "data-1-main-zone-b-0"
    world.kubernetes.patch_status("pvc", claim, {"conditions": [pending]}, world.namespace)
    # Instants at the API server are whole seconds, and the next pod has to be younger than that.
    second_is_over = datetime.fromisoformat(made) + timedelta(seconds=1)
    eventually(lambda: datetime.now(UTC) >= second_is_over, wanted=True)
    world.settle()
    assert {n for n, uid in uids(world).items() if uid != before[n]} == {"main-zone-b-0"}
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace)
    assert f"the file system of {claim} is expanded by a restart" in events
