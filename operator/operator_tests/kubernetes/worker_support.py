"""Questions that tests of the operator's passes ask about the objects of a cluster."""

import json
from typing import Any

from odradek_operator.kubernetes.cluster_worker import Outcome
from odradek_testkit.kubernetes.world import World


def found(world: World, kinds: str) -> dict[str, Any]:
    args = ("get", kinds, "-n", world.namespace, "-l", f"odradek.dev/cluster={world.name}")
    items = json.loads(world.kubernetes.kubectl(*args, "-o", "json"))["items"]
    return {one["metadata"]["name"]: one for one in items}


def asked(world: World, kinds: str) -> dict[str, Any]:
    """The specs; not the status, which Kubernetes' own controllers write at any time."""
    return {
        name: (one["metadata"]["generation"], one["metadata"].get("annotations"), one["spec"])
        for name, one in found(world, kinds).items()
    }


def uids(world: World, kinds: str = "pods") -> dict[str, str]:
    return {name: one["metadata"]["uid"] for name, one in found(world, kinds).items()}


def quiet(world: World) -> None:
    """A pass that has nothing to do writes nothing, also by a new worker."""
    before = len(world.wire.writes)
    for _ in range(3):
        assert world.one_pass() is Outcome.IDLE
    assert world.wire.writes[before:] == []
    world.operator()
    world.one_pass()
    assert world.wire.writes == []


def message(world: World, condition: str) -> str:
    said = world.status()["conditions"]
    return str(next(c["message"] for c in said if c["type"] == condition))


def said(world: World, reason: str) -> set[str]:
    """The types of the Events with that reason."""
    path = f'jsonpath={{.items[?(@.reason=="{reason}")].type}}'
    return set(world.kubernetes.kubectl("get", "events", "-n", world.namespace, "-o", path).split())
