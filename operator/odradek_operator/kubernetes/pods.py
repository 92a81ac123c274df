"""The phase of a pod in the plan's terms: stopped, starting, ready or crashed; since when, why."""

from __future__ import annotations

import re
from datetime import datetime

from lightkube.models.core_v1 import ContainerStatus, PodCondition
from lightkube.resources.core_v1 import Pod

from odradek_operator.kafka.observed import Ended, Phase

CRASHES_MIN = 2  # a container that ended once may recover by itself
LINE_MAX = 500  # characters of a container's last log line
_PAUSE = re.compile(r"back-off (\S+) restarting")  # the kubelet's message
OVERDUE_S = 30.0  # after its grace period: a pod that still exists is stuck


def phase_of(pod: Pod, now: float) -> tuple[Phase, float, str]:
    """Its phase, since when, and why if it does not become ready."""
    assert pod.metadata is not None
    created = _seconds(pod.metadata.creationTimestamp)
    if pod.metadata.deletionTimestamp is not None:
        return _ending(pod, _seconds(pod.metadata.deletionTimestamp), now)
    conditions = {c.type: c for c in (pod.status.conditions if pod.status else None) or ()}
    ready = conditions.get("Ready")
    if ready is not None and ready.status == "True":
        return Phase.READY, _seconds(ready.lastTransitionTime), ""
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Phase.CRASHED, _seconds(scheduled.lastTransitionTime), scheduled.message or ""
    for container in (pod.status.containerStatuses if pod.status else None) or ():
        if why := _why_not_running(container, ready):
            return Phase.CRASHED, created, why
    return Phase.STARTING, created, ""


def _ending(pod: Pod, deadline: float, now: float) -> tuple[Phase, float, str]:
    """Kubernetes removes the pod only if its Node is deleted or marked out of service: a node that
    only does not answer may still run the pod, on the same volume."""
    if now - deadline < OVERDUE_S:
        return Phase.STARTING, deadline, "being restarted"
    node = (pod.spec.nodeName if pod.spec else None) or "unknown"
    message = f"its pod does not terminate: node {node} does not answer. If the node is really "
    message += "down, delete it or taint it with node.kubernetes.io/out-of-service"
    return Phase.CRASHED, deadline, message


def _why_not_running(container: ContainerStatus, ready: PodCondition | None) -> str:
    waiting = container.state.waiting if container.state else None
    if waiting is not None and (waiting.reason or "").startswith(("ErrImage", "ImagePull")):
        return waiting.message or waiting.reason or ""
    ended = _ended(container, ready)
    if ended is None:
        return ""
    # After a storage failure a restart does not help: the first end counts.
    return ended.words if container.restartCount >= CRASHES_MIN or ended.for_storage else ""


def ended_of(pod: Pod) -> Ended | None:
    """How its container ended the last time, if it has not been ready since."""
    conditions = {c.type: c for c in (pod.status.conditions if pod.status else None) or ()}
    ready = conditions.get("Ready")
    for container in (pod.status.containerStatuses if pod.status else None) or ():
        if found := _ended(container, ready):
            return found
    return None


def _ended(container: ContainerStatus, ready: PodCondition | None) -> Ended | None:
    if ready is not None and ready.status == "True":
        return None
    running = container.state.running if container.state else None
    if running and ready and _seconds(ready.lastTransitionTime) > _seconds(running.startedAt) > 0:
        return None  # it was ready after its last start, so that end is over
    now = container.state.terminated if container.state else None
    ended = now or (container.lastState.terminated if container.lastState else None)
    if ended is None:
        return None
    # The message is the end of its log (terminationMessagePolicy); the last line says why.
    lines = (ended.message or "").strip().splitlines()
    last = f": {lines[-1].strip()[:LINE_MAX]}" if lines else ""
    times = f"{container.restartCount} times, last " if container.restartCount > 1 else ""
    again = ""
    if running:
        again = "; it was started again and is not ready yet"
    elif container.state and container.state.waiting:
        pause = _PAUSE.search(container.state.waiting.message or "")
        again = f"; Kubernetes backs off {pause[1]} before it starts it again" if pause else ""
    return Ended(ended.exitCode, f"it ended {times}with exit code {ended.exitCode}{last}{again}")


def _seconds(when: datetime | None) -> float:
    return when.timestamp() if when else 0.0
