"""Repairs of hard goals: replicas leave brokers, shared racks, and brokers without room.

What cannot be repaired is an UnmetGoal of the proposal, and everything else goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odradek_operator.kafka.balance.goals.disk_capacity import DiskCapacity
from odradek_operator.kafka.balance.goals.rack_aware import RackAware, crowded
from odradek_operator.kafka.balance.goals.replica_capacity import ReplicaCapacity
from odradek_operator.kafka.balance.model import Bools
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import Chooser, SearchStep

DRAIN = "drain"  # the reason of steps that empty a broker


class UnmetGoal(NamedTuple):
    goal: str
    message: str


def drain(state: State, choose: Chooser, steps: list[SearchStep]) -> list[UnmetGoal]:
    """Moves all replicas off the leaving brokers, the largest first."""
    rows, places = np.nonzero(state.leaving[state.replicas] & (state.replicas >= 0))
    problems = []
    for index in np.argsort(-state.size[rows], kind="stable"):
        partition, place = int(rows[index]), int(places[index])
        step = choose.emptiest(partition, place, state.open, DRAIN)
        if step is None:
            broker = state.cluster.broker_ids[state.replicas[partition, place]]
            what = f"{state.cluster.name(partition)} cannot leave broker {broker}"
            problems.append(UnmetGoal(DRAIN, f"{what}: {_why_not(state, partition)}"))
        else:
            _take(state, step, steps)
    return problems


def repair(state: State, choose: Chooser, steps: list[SearchStep]) -> list[UnmetGoal]:
    """Racks first: that may also make room."""
    return [*_separate_racks(state, choose, steps), *_make_room(state, choose, steps)]


def _separate_racks(state: State, choose: Chooser, steps: list[SearchStep]) -> list[UnmetGoal]:
    goal = RackAware()
    for partition in np.nonzero(crowded(state))[0]:
        for _ in range(int(state.cluster.factor[partition])):
            step = _separate(state, choose, goal, int(partition))
            if step is None:
                break
            _take(state, step, steps)
    failed = np.nonzero(crowded(state))[0]
    if not len(failed):
        return []
    first = int(failed[0])
    why = _why_not(state, first)
    message = f"{len(failed)} partitions have replicas that share a rack: "
    return [UnmetGoal(goal.name, f"{message}{state.cluster.name(first)} cannot move: {why}")]


def _separate(state: State, choose: Chooser, goal: RackAware, partition: int) -> SearchStep | None:
    """Moves a replica to a rack where it repairs the partition; the preferred leader last."""
    for place in range(int(state.cluster.factor[partition]) - 1, -1, -1):
        to: Bools = goal.repairing(state, partition, place) & state.open
        if to.any() and (step := choose.emptiest(partition, place, to, goal.name)):
            return step
    return None


def _make_room(state: State, choose: Chooser, steps: list[SearchStep]) -> list[UnmetGoal]:
    """The fewest moves for bytes (the largest replicas first), the fewest bytes for counts."""
    problems = []
    for goal in (DiskCapacity(), ReplicaCapacity()):
        for broker in np.nonzero(goal.over(state))[0]:
            rows, places = state.on(int(broker))
            sizes = state.size[rows]
            order = np.argsort(-sizes if goal.largest_first else sizes, kind="stable")
            for index in order:
                if not goal.over(state)[broker]:
                    break
                step = choose.emptiest(int(rows[index]), int(places[index]), state.open, goal.name)
                if step is not None:
                    _take(state, step, steps)
            if goal.over(state)[broker]:
                message = f"broker {state.cluster.broker_ids[broker]} has more than it has room for"
                problems.append(UnmetGoal(goal.name, f"{message}, and no other broker can take it"))
    return problems


def _why_not(state: State, partition: int) -> str:
    cluster = state.cluster
    if cluster.fixed[partition]:
        return "its topic is excluded, it is moving already, or it has no leader to copy from"
    if cluster.below_min_isr[partition]:
        return "it has fewer replicas in sync than min.insync.replicas"
    if state.open.sum() < cluster.factor[partition]:
        return f"it has {cluster.factor[partition]} replicas, and {state.open.sum()} brokers remain"
    return "no other broker has room in a suitable rack"


def _take(state: State, step: SearchStep, steps: list[SearchStep]) -> None:
    state.move(step.partition, step.place, step.to)
    steps.append(step)
