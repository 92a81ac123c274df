"""The states of a KafkaRebalance. Does no I/O: what is wanted, what is persisted, the time.

    ""        → Proposed | Balanced | Failed      when a proposal is due
    Proposed  → Moving                             approved
    Proposed  → Cancelled                          cancelled or deleted
    Moving    → Done                               all moves are done, no throttle is left
    Moving    → Cancelling                         cancelled or deleted
    Cancelling → Cancelled | MovingBack            nothing moves, no throttle is left
    MovingBack → Cancelled
    Done, Balanced, Cancelled, Failed, Proposed → a new proposal, when one is due

A state is persisted before anything is done because of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from odradek_api.base import Resource, instant, quantity_bytes
from odradek_api.cron import parse_schedule
from odradek_api.kafka_rebalance.spec import (
    APPROVE_ANNOTATION,
    CANCEL_ANNOTATION,
    REFRESH_ANNOTATION,
    KafkaRebalanceSpec,
)
from odradek_api.kafka_rebalance.status import GoalStatus, KafkaRebalanceStatus, Progress
from odradek_operator.kafka.actions import named
from odradek_operator.kafka.balance.document import VIOLATED, Proposal
from odradek_operator.kafka.balance.execution import Stage, reversed_directories, reversed_moves
from odradek_operator.kafka.observed import LogSizes
from odradek_operator.kafka.rebalance_triggers import Trigger, automatic_of, seconds_of
from odradek_operator.kafka.rebalancing import Execution, Purpose, Standing
from odradek_operator.kafka.status import conditions
from odradek_operator.reason import Reason

ACTIVE = ("Moving", "Cancelling", "MovingBack")
MOVES_SHOWN = 10  # in the status; the document has all
PROBLEMS_SHOWN = 10
# Fields of the spec that a proposal depends on.
_WISH = ("mode", "brokers", "disks", "goals", "excluded_topics", "excluded_brokers", "price",
         "window", "throttle")  # fmt: skip


@dataclass(frozen=True)
class WantedRebalance:
    """The request of the user: the resource's spec and its annotations."""

    key: str
    spec: KafkaRebalanceSpec | None  # None: invalid, `problem` says why
    approve: str = ""
    cancel: str = ""  # keep or back
    refresh: str = ""
    deleting: bool = False
    generation: int = 0
    problem: str = ""

    @property
    def stopped(self) -> bool:
        return bool(self.cancel) or self.deleting

    @property
    def wish(self) -> str:
        """A digest of a proposal's inputs."""
        if self.spec is None:
            return ""
        parts = [getattr(self.spec, name) for name in _WISH]
        if self.spec.replicas_max is not None:  # a younger field: other digests stay as they were
            parts.append(self.spec.replicas_max)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:10]


def wanted_of(resource: Resource[KafkaRebalanceSpec]) -> WantedRebalance:
    """From the spec, or where it is silent from the annotations."""
    spec, notes = resource.spec, resource.annotations
    cancel = spec.cancel or notes.get(CANCEL_ANNOTATION, "")
    problem = ""
    if cancel not in ("", "keep", "back"):
        problem = f"metadata.annotations[{CANCEL_ANNOTATION}]: {cancel!r} is neither keep nor back"
        cancel = "keep"
    return WantedRebalance(
        resource.key,
        spec,
        spec.approve or notes.get(APPROVE_ANNOTATION, ""),
        cancel,
        notes.get(REFRESH_ANNOTATION, ""),
        resource.deleting,
        resource.generation,
        problem,
    )


def due(wanted: WantedRebalance, status: KafkaRebalanceStatus) -> str:
    """Why a new proposal has to be made now; empty: none is due."""
    if wanted.spec is None or wanted.stopped or status.phase in ACTIVE:
        return ""
    if not status.proposed_at and status.phase == "":
        spec = wanted.spec
        later = spec.imbalance or spec.schedule or automatic_of(spec).any
        return "" if later else "it is the first one"
    if wanted.refresh != status.refresh:
        return "a new one was asked for"
    if wanted.wish != status.wish and status.wish:
        return "the spec was changed"
    return ""


def timed(wanted: WantedRebalance, status: KafkaRebalanceStatus, now: float, created: float) -> str:
    """The same for the schedule; `created` is when this began to be watched."""
    spec = wanted.spec
    if spec is None or spec.schedule is None or wanted.stopped or status.phase in ACTIVE:
        return ""
    after = seconds_of(status.proposed_at) if status.proposed_at else created
    at = parse_schedule(spec.schedule).last_until(now, after)
    return f"the schedule {spec.schedule!r} has come" if at is not None else ""


def check_due(wanted: WantedRebalance, status: KafkaRebalanceStatus, now: float) -> bool:
    """Whether the imbalance of the cluster has to be looked at."""
    spec = wanted.spec
    if spec is None or spec.imbalance is None or wanted.stopped or status.phase in ACTIVE:
        return False
    if status.phase == "Proposed":
        return False  # it waits for an approval
    last = seconds_of(status.checked_at) if status.checked_at else 0.0
    return now - last >= 60.0 * spec.imbalance.check_minutes


def imbalance(proposal: Proposal) -> float:
    """The worst soft goal, as a fraction; 1.0 if a hard goal is violated."""
    if any(g.hard and g.before > VIOLATED for g in proposal.goals):
        return 1.0
    return max((g.before for g in proposal.goals if not g.hard), default=0.0)


def proposed(
    wanted: WantedRebalance,
    status: KafkaRebalanceStatus,
    proposal: Proposal,
    why: str,
    now: float,
    event: Trigger | None = None,
) -> KafkaRebalanceStatus:
    """The status of a new proposal. Its id is added when the document is stored."""
    nothing = not proposal.moves and not proposal.directory_moves
    copied = proposal.bytes + sum(d.bytes for d in proposal.directory_moves)
    return KafkaRebalanceStatus(
        observed_generation=wanted.generation,
        conditions=status.conditions,
        phase="Balanced" if nothing else "Proposed",
        proposed_at=instant(now),
        why=why,
        goals=[GoalStatus(name=g.name, hard=g.hard, before=round(g.before, 4),
                          after=round(g.after, 4)) for g in proposal.goals],
        moves=len(proposal.moves),
        directory_moves=len(proposal.directory_moves),
        first_moves=_first(proposal),
        bytes=copied,
        seconds=round(proposal.seconds),
        leader_changes=proposal.leader_changes,
        problems=proposal.problems[:PROBLEMS_SHOWN],
        refresh=wanted.refresh,
        wish=wanted.wish,
        checked_at=instant(now) if wanted.spec and wanted.spec.imbalance else "",
        trigger=event.key if event else "",
        mode=proposal.mode,
        brokers=proposal.brokers,
        known=status.known,
        away=status.away,
    )  # fmt: skip


def failed(
    wanted: WantedRebalance,
    status: KafkaRebalanceStatus,
    why: str,
    now: float,
    event: Trigger | None = None,
) -> KafkaRebalanceStatus:
    """A proposal that cannot be made, for example because a broker does not exist."""
    return KafkaRebalanceStatus(
        observed_generation=wanted.generation,
        conditions=status.conditions,
        phase="Failed",
        proposed_at=instant(now),
        refresh=wanted.refresh,
        wish=wanted.wish,
        problems=[why],
        checked_at=instant(now) if wanted.spec and wanted.spec.imbalance else "",
        trigger=event.key if event else "",
        known=status.known,
        away=status.away,
    )


def approved(wanted: WantedRebalance, status: KafkaRebalanceStatus) -> bool:
    if status.phase != "Proposed" or wanted.spec is None or wanted.stopped:
        return False
    return wanted.spec.auto_approve or (bool(wanted.approve) and wanted.approve == status.proposal)


def after_request(wanted: WantedRebalance, status: KafkaRebalanceStatus) -> KafkaRebalanceStatus:
    """The state after a person's request: an approval, or a cancellation."""
    change = msgspec.structs.replace
    if approved(wanted, status):
        return change(status, phase="Moving", throttled=True)
    if wanted.stopped:
        if status.phase == "Proposed":
            return change(status, phase="Cancelled")
        if status.phase == "Moving":
            return change(status, phase="Cancelling", back=wanted.cancel == "back")
        if status.phase == "MovingBack" and wanted.cancel != "back":
            return change(status, phase="Cancelling", back=False)
    return status


def after_moves(status: KafkaRebalanceStatus, found: Standing, now: float) -> KafkaRebalanceStatus:
    """The state after an observation of the moves."""
    status = msgspec.structs.replace(status, progress=_progress(status, found))
    if status.phase == "Moving" and found.finished:
        return msgspec.structs.replace(
            status, phase="Done", finished_at=instant(now), throttled=False
        )
    if status.phase == "Cancelling" and found.stopped:
        if not status.proposal:
            return msgspec.structs.replace(
                status, phase="Failed", finished_at=instant(now), throttled=False
            )
        if status.back:
            return msgspec.structs.replace(status, phase="MovingBack")
        return msgspec.structs.replace(
            status, phase="Cancelled", finished_at=instant(now), throttled=False
        )
    if status.phase == "MovingBack" and found.finished:
        return msgspec.structs.replace(
            status, phase="Cancelled", finished_at=instant(now), throttled=False
        )
    return status


def execution_of(
    key: str,
    status: KafkaRebalanceStatus,
    proposal: Proposal,
    sizes: LogSizes | None,
    without: frozenset[int] = frozenset(),
) -> Execution | None:
    """The actions of the plan for a rebalance in this state. `without`: see Execution."""
    removed = frozenset(proposal.removed)
    match status.phase:
        case "Moving":
            return Execution(key, proposal.moves, proposal.throttle, proposal.directory_moves,
                             sizes=sizes, removed=removed, without=without | removed)  # fmt: skip
        case "Cancelling":
            return Execution(key, proposal.moves, proposal.throttle, proposal.directory_moves,
                             Purpose.STOP, sizes=sizes, without=without | removed)  # fmt: skip
        case "MovingBack":
            return Execution(key, reversed_moves(proposal.moves), proposal.throttle,
                             reversed_directories(proposal.directory_moves),
                             sizes=sizes, without=without)  # fmt: skip
    return None


def interrupted(status: KafkaRebalanceStatus, gone: frozenset[int]) -> KafkaRebalanceStatus:
    """Moves that wait for a broker that is lost by now stop, so that it can be replaced."""
    if status.phase not in ("Moving", "MovingBack") or gone <= set(status.brokers):
        return status
    why = f"stopped, because {named(sorted(gone - set(status.brokers)))} was lost meanwhile"
    problems = [why, *status.problems][:PROBLEMS_SHOWN]
    return msgspec.structs.replace(status, phase="Cancelling", back=False, problems=problems)


LOST = "the document of the proposal was deleted; its moves that had begun go on"


def lost(key: str, status: KafkaRebalanceStatus) -> tuple[KafkaRebalanceStatus, Execution]:
    """Without its document only the throttle can be removed, from wherever there is one."""
    after = msgspec.structs.replace(
        status, phase="Cancelling", proposal="", back=False, problems=[LOST]
    )
    return after, Execution(key, (), 1.0, purpose=Purpose.STOP, everywhere=True)


def reported(
    wanted: WantedRebalance, status: KafkaRebalanceStatus, waits: str, now: float
) -> KafkaRebalanceStatus:
    """With its conditions. `waits`: why a proposal that is due is not made yet."""
    ready, reason = _ready(wanted, status, waits)
    there = "True" if status.phase not in ("", "Failed") else "False"
    made = conditions(
        [("Ready", ready, reason), ("ProposalReady", there, reason)],
        status.conditions, wanted.generation, now,
    )  # fmt: skip
    return msgspec.structs.replace(status, conditions=made, observed_generation=wanted.generation)


def _ready(wanted: WantedRebalance, status: KafkaRebalanceStatus, waits: str) -> tuple[str, Reason]:
    p = status.progress
    if wanted.problem and status.phase not in ACTIVE:
        return "False", Reason("InvalidSpec", wanted.problem)
    match status.phase:
        case "":
            text = waits or "a proposal is made when it is due"
            return ("False" if waits else "True"), Reason("Pending", text)
        case "Proposed":
            text = f"{status.moves} partitions would move and {status.bytes} bytes be copied; "
            text += f"approve it with the annotation odradek.dev/approve: {status.proposal}"
            return "False", Reason("Proposed", text)
        case "Moving" | "MovingBack" | "Cancelling":
            text = "" if p is None else f"{p.done} partitions done, {p.moving} moving, "
            text += "" if p is None else f"{p.pending} pending, about {p.seconds_left} s left"
            text += f"; no new moves: {p.hold}" if p is not None and p.hold else ""
            return "False", Reason(status.phase, text or "the moves begin")
        case "Failed":
            return "False", Reason("Failed", "; ".join(status.problems) or "it failed")
        case "Balanced":
            return "True", Reason("Balanced", "nothing has to move")
        case "Cancelled":
            kept = "what had moved was moved back" if status.back else "what has moved stays"
            return "True", Reason("Cancelled", f"it was cancelled; {kept}")
    changed = f"; {p.changed} were changed by others" if p is not None and p.changed else ""
    return "True", Reason("Done", f"{p.done if p else 0} partitions have moved{changed}")


def _progress(status: KafkaRebalanceStatus, found: Standing) -> Progress:
    p = found.progress
    stages = [*p.stages.values(), *found.directories.values()]
    moving = stages.count(Stage.MOVING) + stages.count(Stage.ELECTING)
    left = min(status.bytes, p.bytes_left)
    return Progress(
        done=stages.count(Stage.DONE),
        moving=moving,
        pending=stages.count(Stage.PENDING),
        changed=stages.count(Stage.CHANGED),
        percent=100 if not status.bytes else round(100 * (status.bytes - left) / status.bytes),
        bytes_left=p.bytes_left,
        seconds_left=round(p.seconds_left),
        hold=p.hold,
    )


def _first(proposal: Proposal) -> list[str]:
    moves = [
        f"{m.topic}-{m.partition}: {_ids(m.before)} → {_ids(m.after)}, {m.bytes} bytes: {m.why}"
        for m in proposal.moves[:MOVES_SHOWN]
    ]
    moves += [
        f"{d.topic}-{d.partition} on broker {d.broker}: {d.before} → {d.after}, {d.bytes} bytes: "
        f"{d.why}"
        for d in proposal.directory_moves[:MOVES_SHOWN]
    ]
    return moves[:MOVES_SHOWN]


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def throttle_of(spec: KafkaRebalanceSpec) -> float:
    return float(max(1, quantity_bytes(spec.throttle)))
