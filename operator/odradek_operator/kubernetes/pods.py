"""A pod in the words of a plan: stopped, starting, ready or crashed, since when, and why."""

from __future__ import annotations

import re
from datetime import datetime

from lightkube.models.core_v1 import ContainerStatus, PodCondition
from lightkube.resources.core_v1 import Pod

from odradek_operator.kafka.observed import Ended, Phase

CRASHES_MIN = 2  # a container that ended once may have been unlucky
LINE_MAX = 500  # characters of what a container said last
_PAUSE = re.compile(r"back-off (\S+) restarting")  # as a kubelet words it
OVERDUE_S = 30.0  # a pod that is still there so long after its grace period is stuck


def phase_of(pod: Pod, now: float) -> tuple[Phase, float, str]:
    """Its phase, since when, and for one that does not come up: why."""
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
    """Kubernetes itself ends a pod whose Node is gone or marked out of service, and no other:
    a node that only does not answer may still run it, on the same volume."""
    if now - deadline < OVERDUE_S:
        return Phase.STARTING, deadline, "being restarted"
    node = (pod.spec.nodeName if pod.spec else None) or "unknown"
    say = f"its pod does not end: node {node} does not answer. If the node is really off, delete "
    say += "it or taint it with node.kubernetes.io/out-of-service"
    return Phase.CRASHED, deadline, say


def _why_not_running(container: ContainerStatus, ready: PodCondition | None) -> str:
    waiting = container.state.waiting if container.state else None
    if waiting is not None and (waiting.reason or "").startswith(("ErrImage", "ImagePull")):
        return waiting.message or waiting.reason or ""
    ended = _ended(container, ready)
    if ended is None:
        return ""
    # Whose storage failed was not unlucky: the first end says enough.
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
        return None  # it was ready after its last start, and is not any more: another story
    now = container.state.terminated if container.state else None
    ended = now or (container.lastState.terminated if container.lastState else None)
    if ended is None:
        return None
    # The end of its log (terminationMessagePolicy): the last line says why.
    lines = (ended.message or "").strip().splitlines()
    said = f": {lines[-1].strip()[:LINE_MAX]}" if lines else ""
    times = f"{container.restartCount} times, last " if container.restartCount > 1 else ""
    again = ""
    if running:
        again = "; started again, and not ready yet"
    elif container.state and container.state.waiting:
        pause = _PAUSE.search(container.state.waiting.message or "")
        again = f"; Kubernetes starts it again after a pause of {pause[1]}" if pause else ""
    return Ended(ended.exitCode, f"it ended {times}with exit code {ended.exitCode}{said}{again}")


def _seconds(when: datetime | None) -> float:
    return when.timestamp() if when else 0.0
