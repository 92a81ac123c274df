"""Passes of the operator on a real API server: the objects that they make, and that they settle."""

from typing import Any

import pytest
from lightkube.core.exceptions import ApiError

from odradek_api.base import RESTART_ANNOTATION
from odradek_operator.kubernetes import pods
from odradek_operator.kubernetes.cluster_worker import ClusterWorker, Outcome
from odradek_testkit.kubernetes.world import World
from operator_tests.kubernetes.test_manifests import eventually
from operator_tests.kubernetes.worker_support import asked, found, message, quiet, uids


def test_a_cluster_is_made_and_then_left_alone(world: World) -> None:
    resources = {"requests": {"cpu": "0.5", "memory": "1024Mi"}}  # spelled 500m, 1Gi by the server
    world.cluster(brokers=3, resources=resources)
    world.settle()
    assert world.condition("Ready") == "True AllBrokersReady"
    assert world.condition("RackAware") == "True RacksApart"
    assert world.status()["formation"] == [0, 1, 2]
    assert sorted(found(world, "pods")) == [f"main-zone-{r}-0" for r in "abc"]
    before = len(world.wire.writes)
    for _ in range(3):
        assert world.one_pass() is Outcome.IDLE
    assert world.wire.writes[before:] == []
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace)
    assert "BrokerMissing" in events


def test_up_and_down(world: World) -> None:
    world.cluster(brokers=3)
    world.topic("orders", partitions=6, replicationFactor=3)
    world.settle()
    before = uids(world)
    world.cluster(brokers=6, rebalance="auto")
    world.settle()
    assert {n: u for n, u in uids(world).items() if n in before} == before  # nobody restarted
    assert len(before) * 2 == len(uids(world))
    assert {b["id"]: b["rack"][-1] for b in world.status()["brokers"]} == dict(enumerate("abcabc"))
    assert any(4 in p.replicas for p in world.kafka.partitions.values())
    world.cluster(brokers=3, rebalance="auto")
    world.settle()
    assert uids(world) == before
    assert sorted(world.kafka.registered) == [0, 1, 2]
    assert {r for p in world.kafka.partitions.values() for r in p.replicas} == {0, 1, 2}
    claims = found(world, "pvc")
    assert len(claims) == 6  # Retain: the volumes of 3, 4 and 5 are kept
    assert claims["data-0-main-zone-b-1"]["metadata"]["labels"]["odradek.dev/broker-id"] == "4"
    quiet(world)


@pytest.mark.parametrize(
    ("change", "annotations"),
    [
        ({"config": {"num.io.threads": 3}}, {}),
        ({"image": "odradek/broker:next"}, {}),
        ({}, {RESTART_ANNOTATION: "now"}),
    ],
    ids=["config", "image", "annotation"],
)
def test_a_roll(world: World, change: dict[str, Any], annotations: dict[str, str]) -> None:
    world.cluster(brokers=3)
    world.topic("orders", partitions=6, replicationFactor=3)
    world.settle()
    before = uids(world)
    world.cluster(annotations, brokers=3, **change)
    world.settle()
    after = uids(world)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    evictions = [w for w in world.wire.writes if w.endswith("/eviction")]
    assert evictions[-1].split("/")[-2] == "main-zone-a-0"  # the active controller was last
    assert world.kafka.away_max == 1
    assert world.kafka.calls.count("elect") >= 2
    assert all(p.leader == p.replicas[0] for p in world.kafka.partitions.values())
    assert "rolling" not in world.status()
    assert len(found(world, "configmap")) == 1
    quiet(world)


def test_a_dynamic_setting_restarts_nobody(world: World) -> None:
    world.cluster(brokers=3)
    world.settle()
    before = uids(world)
    world.cluster(brokers=3, config={"log.retention.ms": 5000})
    world.settle()
    assert world.kafka.dynamic == {"log.retention.ms": "5000"}
    assert world.status()["dynamicConfig"] == ["log.retention.ms"]
    world.cluster(brokers=3, config={})
    world.settle()
    assert world.kafka.dynamic == {}
    assert uids(world) == before
    quiet(world)


def test_objects_deleted_by_hand_are_created_again(world: World) -> None:
    world.cluster(brokers=3, networkPolicy={"enabled": True})
    world.settle()
    kinds = "service,pdb,configmap,serviceaccount,networkpolicy"
    before = sorted(found(world, kinds))
    pods = uids(world)
    for kind in kinds.split(","):
        args = (kind, "-n", world.namespace, "-l", "odradek.dev/cluster=main")
        world.kubernetes.kubectl("delete", *args)
    world.kubernetes.kubectl("label", "sts", "main-zone-a", "-n", world.namespace, "extra=fine")
    patch = '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}'
    world.kubernetes.kubectl("patch", "sts", "main-zone-b", "-n", world.namespace, "-p", patch)
    world.settle()
    assert sorted(found(world, kinds)) == before
    sets = found(world, "statefulset")
    template = sets["main-zone-b"]["spec"]["template"]["spec"]
    assert template["terminationGracePeriodSeconds"] == 60
    assert sets["main-zone-a"]["metadata"]["labels"]["extra"] == "fine"
    assert uids(world) == pods
    quiet(world)


def test_a_config_map_deleted_by_hand_restarts_nobody(world: World) -> None:
    """The settings of running pods are unknown then: a change cannot be concluded."""
    world.cluster(brokers=3)
    world.settle()
    pods, (config,) = uids(world), found(world, "configmap")
    world.kubernetes.kubectl("delete", "configmap", config, "-n", world.namespace)
    world.settle()
    assert list(found(world, "configmap")) == [config]
    assert uids(world) == pods

    # With another setting at the same time the ConfigMap differs, which causes a roll.
    world.kubernetes.kubectl("delete", "configmap", config, "-n", world.namespace)
    world.cluster(brokers=3, config={"num.partitions": 4})
    world.settle()
    assert config not in found(world, "configmap")
    assert not set(uids(world).values()) & set(pods.values())
    quiet(world)


def test_a_statefulset_deleted_by_hand_keeps_its_ids(world: World) -> None:
    world.cluster(brokers=6)
    world.settle()
    running = uids(world)
    args = ("delete", "statefulset", "main-zone-b", "-n", world.namespace)
    world.kubernetes.kubectl(*args, "--cascade=orphan")
    world.settle()
    assert uids(world) == running  # adopted, not restarted
    world.kubernetes.kubectl(*args)
    world.settle()
    assert {b["id"]: b["rack"][-1] for b in world.status()["brokers"]} == dict(enumerate("abcabc"))
    assert len({*running.values()} & {*uids(world).values()}) == 4
    sets = found(world, "statefulset")
    assert sets["main-zone-b"]["metadata"]["annotations"]["odradek.dev/broker-ids"] == "1,4"
    quiet(world)


def test_a_statefulset_scaled_by_hand(world: World) -> None:
    world.cluster(brokers=3)
    world.settle()
    before = uids(world)
    scale = ("scale", "statefulset/main-zone-a", "-n", world.namespace)
    world.kubernetes.kubectl(*scale, "--replicas=0")
    world.settle()
    assert uids(world).keys() == before.keys()
    world.kubernetes.kubectl(*scale, "--replicas=3")
    world.one_pass()
    assert found(world, "statefulset")["main-zone-a"]["spec"]["replicas"] == 1


def test_pause_and_bad_specs_touch_nothing(world: World) -> None:
    world.cluster(brokers=3)
    world.settle()
    before = asked(world, "statefulset")
    world.cluster(brokers=4, pause=True)
    world.one_pass()
    assert world.condition("Progressing") == "False Paused"
    assert asked(world, "statefulset") == before
    world.cluster(brokers=4, config={"node.id": 7})
    world.one_pass()
    assert world.condition("Ready") == "False InvalidSpec"
    assert asked(world, "statefulset") == before
    writes = len(world.wire.writes)
    world.one_pass()
    assert len(world.wire.writes) == writes
    world.cluster(brokers=4)
    world.settle()
    assert world.condition("Ready") == "True AllBrokersReady"


def test_an_invalid_name_is_reported(world: World) -> None:
    for name in ("n" * 50, "dotted.name", "7up"):
        world.apply("KafkaCluster", name, {"brokers": 1})
        ClusterWorker(f"{world.namespace}/{name}", world.tools).one_pass()
        assert world.condition("Ready", "KafkaCluster", name) == "False InvalidSpec"
    assert not found(world, "statefulset")


def test_a_refusal_of_the_api_server_is_reported(world: World) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": world.namespace},
        "spec": {"hard": {"count/configmaps": "0"}},
    }
    world.kubernetes.apply(quota)
    used = ("get", "quota", "none", "-n", world.namespace, "-o", "jsonpath={.status.hard}")
    eventually(lambda: "configmaps" in world.kubernetes.kubectl(*used), True)
    world.cluster(brokers=3)
    with pytest.raises(ApiError, match="exceeded quota"):
        world.one_pass()
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace)
    assert "exceeded quota" in events
    world.kubernetes.kubectl("delete", "quota", "none", "-n", world.namespace)
    world.settle()
    assert world.condition("Ready") == "True AllBrokersReady"


def test_a_pod_without_room_is_reported(world: World) -> None:
    world.cluster(brokers=3)
    world.one_pass()
    world.settle()
    name = "main-zone-a-0"
    status = {"conditions": [
        {"type": "Ready", "status": "False"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
         "message": "0/3 nodes are available"},
    ]}  # fmt: skip
    world.kubernetes.patch_status("pod", name, status, world.namespace)
    world.one_pass()
    assert world.condition("Ready") == "False BrokersNotReady"
    degraded = next(c for c in world.status()["conditions"] if c["type"] == "Degraded")
    assert "0/3 nodes are available" in degraded["message"]


def test_a_pod_on_a_node_that_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays Terminating: its volume may be in use there. Reported, waited for, never forced."""
    monkeypatch.setattr(pods, "OVERDUE_S", 0.0)
    world.cluster(brokers=3)
    world.settle()
    args = ("delete", "pod", "main-zone-a-0", "-n", world.namespace)
    world.kubernetes.kubectl(*args, "--wait=false", "--grace-period=1")
    eventually(lambda: world.one_pass() and world.condition("Degraded"), "True BrokerCrashed")
    assert "does not terminate: node node-a does not answer" in message(world, "Degraded")
    world.cluster({RESTART_ANNOTATION: "now"}, brokers=3)
    before = uids(world)
    world.one_pass()
    world.one_pass()
    assert uids(world) == before  # no other broker is restarted meanwhile
    world.settle()  # the node answers again
    assert not set(uids(world).values()) & set(before.values())


def test_a_relabelled_node_is_reported(world: World) -> None:
    label = f"rack.example/{world.namespace[:40]}"
    for letter in "abc":
        world.kubernetes.kubectl("label", "node", f"node-{letter}", f"{label}=r-{letter}")
    world.cluster(brokers=3, racks={"topologyKey": label})
    world.settle()
    assert world.condition("RackAware") == "True RacksApart"
    before = uids(world)
    world.kubernetes.kubectl("label", "node", "node-a", f"{label}=r-b", "--overwrite")
    eventually(lambda: world.one_pass() and world.condition("RackAware"), "False NodeInOtherRack")
    assert "broker 0 of rack r-a is on a node of r-b" in message(world, "RackAware")
    assert uids(world) == before
    world.kubernetes.kubectl("label", "node", "node-a", f"{label}=r-a", "--overwrite")
    eventually(lambda: world.one_pass() and world.condition("RackAware"), "True RacksApart")


def test_a_certificate_that_changes_is_rolled_out(world: World) -> None:
    def secret(text: str) -> None:
        meta = {"name": "tls", "namespace": world.namespace}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
        world.kubernetes.apply({**made, "stringData": {"tls.crt": text}})

    template = {
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "volumeMounts": [{"name": "tls", "mountPath": "/etc/tls", "readOnly": True}],
    }
    secret("one")
    world.cluster(brokers=3, podTemplate=template)
    world.settle()
    before = uids(world)
    mounted = found(world, "pod")["main-zone-a-0"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "tls", "mountPath": "/etc/tls", "readOnly": True} in mounted
    quiet(world)
    secret("two")
    world.settle()
    assert not set(uids(world).values()) & set(before.values())
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace)
    assert "a Secret that it mounts changed" in events
    before = uids(world)
    world.wire.refuse = lambda request: 403 if "/secrets/" in request.url.path else None
    world.one_pass()
    secret("three")
    world.settle()
    # Without the right to read the Secret nothing changes, and that is reported.
    assert uids(world) == before
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace)
    assert "Secret tls cannot be read, so changes of it are not noticed" in events


def test_a_drain_of_nodes_takes_one_broker_at_a_time(world: World) -> None:
    """The budget is the API server's own; a restart that it refuses is tried again later."""
    world.cluster(brokers=3)
    world.settle()
    budget = found(world, "pdb")["main-brokers"]["spec"]
    assert budget["maxUnavailable"] == 1
    world.wire.refuse = lambda request: 429 if request.url.path.endswith("/eviction") else None
    before = uids(world)
    world.cluster({RESTART_ANNOTATION: "now"}, brokers=3)
    for _ in range(5):
        world.try_pass()
    assert uids(world) == before
    assert "Restarting" in str(world.status()["rolling"])
    world.wire.refuse = lambda _: None
    world.settle()
    assert not set(uids(world).values()) & set(before.values())
