"""The next state and action of a SparkApplication, with the states of kubeflow's Spark operator.

    decide(application, driver, before, now_s) -> Decision(state, action, …)        does no I/O

Used only if our operator runs SparkApplications itself. States and transitions (FOLLOWS):

    "" ──► SUBMITTED ──► RUNNING ──► SUCCEEDING ──► COMPLETED
                │           └──────► FAILING ─────► FAILED
                │                      └► PENDING_RERUN ──► SUBMITTED
    (spec changed) any ──► INVALIDATING ──► PENDING_RERUN
    (suspend)      any ──► SUSPENDING ──► SUSPENDED ──► RESUMING ──► SUBMITTED
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from odradek_operator.spark.desired import PIPELINE_LABEL

FOLLOWS: dict[str, frozenset[str]] = {
    "": frozenset({"SUBMITTED", "SUSPENDING"}),
    "SUBMITTED": frozenset({"RUNNING", "SUCCEEDING", "FAILING", "INVALIDATING", "SUSPENDING"}),
    "RUNNING": frozenset({"SUCCEEDING", "FAILING", "INVALIDATING", "SUSPENDING"}),
    "SUCCEEDING": frozenset({"COMPLETED", "PENDING_RERUN"}),
    "FAILING": frozenset({"FAILED", "PENDING_RERUN"}),
    "INVALIDATING": frozenset({"PENDING_RERUN"}),
    "PENDING_RERUN": frozenset({"SUBMITTED", "INVALIDATING", "SUSPENDING"}),
    "SUSPENDING": frozenset({"SUSPENDED"}),
    "SUSPENDED": frozenset({"RESUMING"}),
    "RESUMING": frozenset({"SUBMITTED", "SUSPENDING"}),
    "COMPLETED": frozenset({"INVALIDATING", "SUSPENDING"}),
    "FAILED": frozenset({"INVALIDATING", "SUSPENDING"}),
}
ENDED = ("COMPLETED", "FAILED")
Action = Literal["", "submit", "remove driver", "remove application"]
DEFAULT_INTERVAL_S = 5
WRONG_SPEC = 2  # exit code of a driver that refuses its job: a restart would not help


@dataclass(frozen=True)
class Driver:
    """The observed driver pod."""

    phase: str  # Pending, Running, Succeeded, Failed
    message: str = ""  # why it failed
    deleting: bool = False
    exit_code: int | None = None


@dataclass(frozen=True)
class Decision:
    state: str
    action: Action = ""
    message: str = ""
    attempts: int = 0
    submission: str = ""  # digest of the submitted spec
    ended_at_s: float | None = None
    again_in_s: float | None = None  # until the next decision is due

    def __post_init__(self) -> None:
        assert self.state in FOLLOWS, self.state


class To(Protocol):
    """Makes the next decision; fields that are not given keep their values."""

    def __call__(
        self, new: str, action: Action = "", message: str = "", **more: Any
    ) -> Decision: ...


def submission_of(application: Mapping[str, Any]) -> str:
    """A digest of the spec without suspend, timeToLiveSeconds and restartPolicy."""
    spec = dict(application["spec"])
    for name in ("suspend", "timeToLiveSeconds", "restartPolicy"):
        spec.pop(name, None)
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def decide(
    application: Mapping[str, Any], driver: Driver | None, before: Decision, now_s: float
) -> Decision:
    """At most one transition; the status has to be written before the action is carried out."""
    spec = application["spec"]
    submission = submission_of(application)
    state = before.state

    def to(new: str, action: Action = "", message: str = "", **more: Any) -> Decision:
        assert new == state or new in FOLLOWS[state], f"{state} → {new}"
        known = {"attempts": before.attempts, "submission": before.submission,
                 "ended_at_s": before.ended_at_s}  # fmt: skip
        return Decision(new, action, message, **{**known, **more})

    if spec.get("suspend") and state not in ("SUSPENDING", "SUSPENDED"):
        if state in ("SUCCEEDING", "FAILING", "INVALIDATING"):  # let it end first
            return _ending(application, to, state, driver, before, now_s)
        return to("SUSPENDING", "remove driver" if driver else "")
    if state == "SUSPENDING":
        return to(state, "remove driver") if driver else to("SUSPENDED")
    if state == "SUSPENDED":
        return to(state) if spec.get("suspend") else to("RESUMING")
    changed = before.submission not in ("", submission)
    if changed and state not in ("INVALIDATING", "SUCCEEDING", "FAILING", "RESUMING"):
        return to("INVALIDATING", "remove driver" if driver else "", "the spec changed",
                  submission=submission, attempts=0, ended_at_s=None)  # fmt: skip
    if state in ("", "RESUMING"):
        return to("SUBMITTED", "submit", submission=submission, attempts=before.attempts + 1)
    if state in ("SUBMITTED", "RUNNING"):
        return _running(to, state, driver, before)
    if state in ("SUCCEEDING", "FAILING", "INVALIDATING"):
        return _ending(application, to, state, driver, before, now_s)
    if state == "PENDING_RERUN":
        return _rerun(to, state, driver, before, spec, now_s)
    return _ended(spec, to, state, before, now_s)


def _running(to: To, state: str, driver: Driver | None, before: Decision) -> Decision:
    if driver is None:
        if state == "SUBMITTED":  # the operator stopped between writing the status and the action
            return to(state, "submit")
        return to("FAILING", message="the driver pod was deleted")
    if driver.phase == "Succeeded":
        return to("SUCCEEDING")
    if driver.phase == "Failed":
        return to("FAILING", message=driver.message or "the driver failed")
    if driver.phase == "Running":
        return to("RUNNING")
    return to(state, message=before.message)


def _ending(
    application: Mapping[str, Any],
    to: To,
    state: str,
    driver: Driver | None,
    before: Decision,
    now_s: float,
) -> Decision:
    policy = application["spec"].get("restartPolicy") or {}
    kind = policy.get("type", "Never")
    if state == "INVALIDATING":
        return to("PENDING_RERUN", ended_at_s=None)
    if state == "SUCCEEDING":
        again = kind == "Always"
    else:
        retries = int(policy.get("onFailureRetries") or 0)
        again = kind == "Always" or (kind == "OnFailure" and before.attempts <= retries)
        again = again and not _refused(application, driver)
    new = "PENDING_RERUN" if again else ("COMPLETED" if state == "SUCCEEDING" else "FAILED")
    return to(new, message=before.message, ended_at_s=now_s)


def _refused(application: Mapping[str, Any], driver: Driver | None) -> bool:
    """Only for a pipeline's driver: in other programs the exit code may mean anything."""
    ours = PIPELINE_LABEL in (application["metadata"].get("labels") or {})
    return ours and driver is not None and driver.exit_code == WRONG_SPEC


def _rerun(
    to: To, state: str, driver: Driver | None, before: Decision, spec: Any, now_s: float
) -> Decision:
    policy = spec.get("restartPolicy") or {}
    interval = float(policy.get("onFailureRetryInterval") or DEFAULT_INTERVAL_S)
    wait_s = 0.0 if before.ended_at_s is None else before.ended_at_s + interval - now_s
    if wait_s > 0:
        return to(state, message=before.message, again_in_s=wait_s)
    if driver is not None:
        return to(state, "" if driver.deleting else "remove driver", before.message)
    return to("SUBMITTED", "submit", attempts=before.attempts + 1, ended_at_s=None)


def _ended(spec: Any, to: To, state: str, before: Decision, now_s: float) -> Decision:
    ttl = spec.get("timeToLiveSeconds")
    if ttl is None or before.ended_at_s is None:
        return to(state, message=before.message)
    left_s = before.ended_at_s + float(ttl) - now_s
    if left_s <= 0:
        return to(state, "remove application", before.message)
    return to(state, message=before.message, again_in_s=left_s)
