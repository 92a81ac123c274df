"""Disks that fill up, on Kubernetes: conditions and events; no broker is restarted."""

from collections.abc import Iterator
from typing import Any

import pytest
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from odradek_operator.kubernetes.cluster_worker import Outcome
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World
from operator_tests.kubernetes.worker_support import uids

LAST_LINES = "ERROR: write failed\nodradek: log directory /data: no space left on device\n"


@pytest.fixture
def world(kubernetes: ControlPlane, namespace: str) -> Iterator[World]:
    made = World(kubernetes, namespace)
    made.cluster(brokers=3)
    made.settle()
    yield made
    made.close()


def message(world: World, condition: str) -> str:
    (found,) = [c for c in world.status()["conditions"] if c["type"] == condition]
    return str(found["message"])


def events(world: World, reason: str) -> list[str]:
    path = "jsonpath={range .items[*]}{.type}: {.message}{'\\n'}{end}"
    select = f"--field-selector=reason={reason}"
    said = world.kubernetes.kubectl("get", "events", "-n", world.namespace, select, "-o", path)
    return said.splitlines()


def container_ended(world: World, pod: str) -> None:
    """As a kubelet reports a container that ended and waits for its next start."""
    container = {
        "name": "broker", "image": "odradek/broker:test", "imageID": "", "ready": False,
        "restartCount": 1,
        "lastState": {"terminated": {"exitCode": 75, "reason": "Error", "message": LAST_LINES}},
        "state": {"waiting": {"reason": "CrashLoopBackOff",
                              "message": "back-off 10s restarting failed container=broker"}},
    }  # fmt: skip
    ready: dict[str, Any] = {"type": "Ready", "status": "False"}
    status = {"conditions": [ready], "containerStatuses": [container]}
    world.own.patch(Pod.Status, pod, {"status": status}, namespace=world.namespace,
                    patch_type=PatchType.STRATEGIC)  # fmt: skip


def test_a_disk_fills_up_and_gets_room(world: World) -> None:
    assert world.condition("DiskPressure") == "False EnoughSpace"
    before = uids(world)
    world.kafka.usable_bytes[1] = 12 << 20
    assert world.one_pass() is Outcome.WAITING, "it polls: no event reports the end"
    assert world.condition("DiskPressure") == "True LowSpace"
    assert message(world, "DiskPressure").startswith("broker 1: /data has 12 MiB free of 10 GiB")
    (disk,) = world.status()["disks"]
    assert (disk["broker"], disk["directory"], disk["state"]) == (1, "/data", "Low")
    columns = world.kubernetes.kubectl("get", "kc", "-n", world.namespace)
    assert "DISKPRESSURE" in columns
    written = len(world.wire.writes)
    world.one_pass()
    assert world.wire.writes[written:] == [], "the same again is neither status nor event"
    (event,) = events(world, "LowSpace")
    assert event.startswith("Warning: broker 1: /data has 12 MiB free")
    world.kafka.usable_bytes.clear()
    assert world.one_pass() is Outcome.IDLE
    assert world.condition("DiskPressure") == "False EnoughSpace"
    assert "disks" not in world.status()
    assert events(world, "DiskPressureOver") == [
        "Normal: broker 1: /data has enough free space again"
    ]
    assert uids(world) == before


def test_a_broker_that_ended_because_its_disk_was_full_is_left_to_the_kubelet(world: World) -> None:
    before = uids(world)
    container_ended(world, "main-zone-b-0")
    del world.kafka.up[1]
    assert world.one_pass() is Outcome.WAITING
    assert world.condition("DiskPressure") == "True BrokerEnded"
    said = message(world, "DiskPressure")
    assert said == (
        "broker 1: it ended with exit code 75: odradek: log directory /data: no space left on "
        "device; Kubernetes backs off 10s before it starts it again"
    )
    assert said.removeprefix("broker 1: ") in message(world, "Degraded")
    assert said in message(world, "Ready")
    assert events(world, "BrokerEnded") == [f"Warning: {said}"]
    assert uids(world) == before, "a restart by the operator would help nobody"
    world.settle()  # the simulated kubelet makes it ready
    assert world.condition("DiskPressure") == "False EnoughSpace"
    assert events(world, "DiskPressureOver") == ["Normal: broker 1 is running again"]
    assert uids(world) == before
