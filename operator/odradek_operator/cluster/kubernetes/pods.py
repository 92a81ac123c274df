"""A pod in the words of a plan: stopped, starting, ready or crashed, since when, and why."""

from __future__ import annotations

import re
from datetime import datetime

from lightkube.models.core_v1 import ContainerStatus
from lightkube.resources.core_v1 import Pod

from odradek_operator.observed import Ended, Phase

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
        if why := _why_not_running(container):
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


def _why_not_running(container: ContainerStatus) -> str:
    waiting = container.state.waiting if container.state else None
    if waiting is not None and (waiting.reason or "").startswith(("ErrImage", "ImagePull")):
        return waiting.message or waiting.reason or ""
    ended = _ended(container)
    if ended is None:
        return ""
    # Whose storage failed was not unlucky: the first end says enough.
    return ended.words if container.restartCount >= CRASHES_MIN or ended.for_storage else ""


def ended_of(pod: Pod) -> Ended | None:
    """How its container ended the last time, if it has not become ready since."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    if any(c.type == "Ready" and c.status == "True" for c in conditions):
        return None
    for container in (pod.status.containerStatuses if pod.status else None) or ():
        if found := _ended(container):
            return found
    return None


def _ended(container: ContainerStatus) -> Ended | None:
    now = container.state.terminated if container.state else None
    ended = now or (container.lastState.terminated if container.lastState else None)
    if ended is None:
        return None
    # The end of its log (terminationMessagePolicy): the last line says why.
    lines = (ended.message or "").strip().splitlines()
    said = f": {lines[-1].strip()[:LINE_MAX]}" if lines else ""
    times = f"{container.restartCount} times, last " if container.restartCount > 1 else ""
    waiting = container.state.waiting if container.state else None
    pause = _PAUSE.search((waiting.message if waiting else None) or "")
    again = f"; Kubernetes starts it again after a pause of {pause[1]}" if pause else ""
    return Ended(ended.exitCode, f"it ended {times}with exit code {ended.exitCode}{said}{again}")


def _seconds(when: datetime | None) -> float:
    return when.timestamp() if when else 0.0
