"""What a person asked of a running local runtime, besides its manifests: pause, stop, restart.

    steer(state_dir, SteeringAction.PAUSE, "default/main")  # by the console
    steered(resources, read_steering(state_dir))            # by the runtime, in its next pass

The manifests are the user's files, and are never written. What was asked for is in steering.json,
which is emptied when a runtime starts there.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from odradek_api.base import RESTART_ANNOTATION, Resource
from odradek_operator.local.ledger import write_json

NAME = "steering.json"


class SteeringAction(Enum):
    """The first two are about a KafkaCluster, the others about a SparkPipeline."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    START = "start"
    RESTART = "restart"


class Steering(msgspec.Struct, rename="camel"):
    """By "namespace/name"; what is not named is as its manifest says."""

    pause: dict[str, bool] = {}
    suspend: dict[str, bool] = {}
    restarts: dict[str, str] = {}  # when it was asked for


def read_steering(state_dir: Path) -> Steering:
    try:
        return msgspec.json.decode((state_dir / NAME).read_bytes(), type=Steering)
    except (OSError, msgspec.DecodeError):
        return Steering()


def steer(state_dir: Path, action: SteeringAction, key: str) -> None:
    """Raises OSError."""
    with open(state_dir / f"{NAME}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two consoles may look at one runtime
        found = read_steering(state_dir)
        if action in (SteeringAction.PAUSE, SteeringAction.RESUME):
            found.pause[key] = action is SteeringAction.PAUSE
        else:
            found.suspend[key] = action is SteeringAction.STOP
        if action is SteeringAction.RESTART:
            found.restarts[key] = datetime.now(UTC).isoformat()
        write_json(state_dir / NAME, found)


def steered(resources: Iterable[Resource[Any]], steering: Steering) -> list[Resource[Any]]:
    return [_one(resource, steering) for resource in resources]


def _one(resource: Resource[Any], steering: Steering) -> Resource[Any]:
    key = resource.key
    if resource.kind == "KafkaCluster" and key in steering.pause:
        spec = msgspec.structs.replace(resource.spec, pause=steering.pause[key])
        return replace(resource, spec=spec)
    if resource.kind != "SparkPipeline":
        return resource
    if key in steering.suspend:
        spec = msgspec.structs.replace(resource.spec, suspend=steering.suspend[key])
        resource = replace(resource, spec=spec)
    if key in steering.restarts:
        annotations = {**resource.annotations, RESTART_ANNOTATION: steering.restarts[key]}
        resource = replace(resource, annotations=annotations)
    return resource
