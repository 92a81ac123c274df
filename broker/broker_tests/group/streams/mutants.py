"""Planted bugs of streams groups: each replaces one function by a wrong one, in test code only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker_tests.sim.mutants import Mutant
from odradek_broker.group.member_records import MemberRecord, tombstone
from odradek_broker.group.streams import assignor, heartbeat, reconcile, records, requests
from odradek_broker.group.streams.context import TimerKind
from odradek_broker.group.streams.group import Holders, StreamsGroup
from odradek_broker.group.streams.member import StreamsMember
from odradek_broker.group.streams.tasks import (
    NO_TASKS,
    OWNS_NOTHING,
    OwnedTasks,
    Tasks,
)


def _nothing(*_: Any, **__: Any) -> None: ...


def _nobody(group: StreamsGroup) -> Holders:
    """Tasks of others look free."""
    return Holders({}, {})


def _no_copies(group: StreamsGroup) -> Holders:
    """Standby tasks are not known: a process gets a task twice."""
    return Holders(_HOLDERS(group).active, {})


_HOLDERS = StreamsGroup.holders.fget  # type: ignore[attr-defined]


def _all_kept(owned: OwnedTasks, target: Tasks) -> tuple[OwnedTasks, OwnedTasks]:
    """Members never give anything back."""
    return owned, OWNS_NOTHING


def _gone_at_once(owned: OwnedTasks, target: Tasks) -> tuple[OwnedTasks, OwnedTasks]:
    """Tasks count as given back before their member has confirmed it."""
    return _SPLIT(owned, target)[0], OWNS_NOTHING


_SPLIT = reconcile._split


def _without_bump(group: StreamsGroup, member_id: str) -> Any:
    """The tasks of a member that is gone are not assigned again."""
    decision = _FENCE(group, member_id)
    return replace(decision, records=decision.records[:-1])


_FENCE = heartbeat.fence


def _stays_a_member(group_id: str, member_id: str) -> list[MemberRecord]:
    """A member that is gone stays in the log."""
    kinds = (records.CURRENT_MEMBER, records.TARGET_MEMBER)
    return [tombstone(kind, group_id, member_id) for kind in kinds]


def _forgets_owned(value: Any) -> dict[str, Any]:
    """Replayed members own nothing: their tasks look free."""
    return {**_PLACED(value), "owned": OWNS_NOTHING}


_PLACED = records.placed


def _first_only(subtopologies: Any, names: Any) -> list[Any]:
    """Tasks of the last partition of each subtopology are forgotten."""
    return [
        task
        for task in _TASKS(subtopologies, names)
        if task.partition < subtopologies[task.subtopology].tasks - 1
    ]


_TASKS = assignor._tasks


def _all_to_one(members: Any, subtopologies: Any, replicas: int) -> dict[str, Tasks]:
    """The first member gets everything."""
    first = min(members)
    everything = _ASSIGN({first: members[first]}, subtopologies, 0)
    return {member: everything.get(member, NO_TASKS) for member in members}


_ASSIGN = assignor.assign


def _also_here(plan: Any, task: Any, member: str) -> bool:
    """Copies may be where the task is."""
    return False


def _any_epoch(member: StreamsMember, received: int, owned: Any) -> None:
    """Members with an old epoch are accepted: they do not learn that they were replaced."""


def _no_session(*args: Any) -> Any:
    """Members that are silent are never removed."""
    decision = _HEARTBEAT(*args)
    kept = [t for t in decision.timers if t.kind is not TimerKind.SESSION]
    return replace(decision, timers=kept)


_HEARTBEAT = heartbeat.heartbeat


def _lasting_delay(*args: Any) -> Any:
    """The first assignment waits for ever."""
    return replace(_CONTEXT(*args), delayed=True)


_CONTEXT = requests.context
SEEDS_MAX = 80

MUTANTS: tuple[Mutant, ...] = (
    Mutant("owners-ignored", ((StreamsGroup, "holders", property(_nobody)),)),
    Mutant("copies-ignored", ((StreamsGroup, "holders", property(_no_copies)),)),
    Mutant("nothing-given-back", ((reconcile, "_split", _all_kept),)),
    Mutant("given-back-at-once", ((reconcile, "_split", _gone_at_once),)),
    Mutant("tasks-of-the-dead-stay", ((heartbeat, "fence", _without_bump),)),
    Mutant("the-dead-stay-members", ((records, "member_tombstones", _stays_a_member),)),
    Mutant("owned-not-replayed", ((records, "placed", _forgets_owned),)),
    Mutant("tasks-forgotten", ((assignor, "_tasks", _first_only),)),
    Mutant("no-balance", ((heartbeat, "assign", _all_to_one),)),
    Mutant("no-sessions", ((heartbeat, "heartbeat", _no_session),)),
    Mutant("first-assignment-never", ((requests, "context", _lasting_delay),)),
)
