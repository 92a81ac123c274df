"""The proposal: a document that says what would move, why, how long it takes, and what improves.

    proposal = describe(cluster, plan, mode="full", throttle=50e6, directory_moves=())

document.py has its types.

Bytes are those of new replicas only; a change of the leader or of the order moves none. Times are
at the replication throttle, for the broker that has the most to send or to receive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from odradek_operator.kafka.balance.directories import DirectoryMove
from odradek_operator.kafka.balance.document import (
    FORMAT,
    DirectoryChange,
    Goal,
    Move,
    Proposal,
    seconds,
)
from odradek_operator.kafka.balance.goals import HARD, LOADS
from odradek_operator.kafka.balance.goals.topic_spread import NAME as TOPIC_SPREAD
from odradek_operator.kafka.balance.goals.topic_spread import TITLE as TOPIC_SPREAD_TITLE
from odradek_operator.kafka.balance.model import Cluster, Floats
from odradek_operator.kafka.balance.repair import DRAIN, UnmetGoal
from odradek_operator.kafka.balance.search import Plan
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import SearchStep, StepKind


def describe(
    cluster: Cluster,
    plan: Plan,
    *,
    mode: str,
    throttle: float,
    brokers: Sequence[int] = (),
    directory_moves: Sequence[DirectoryMove] = (),
    problems: Sequence[UnmetGoal] = (),
) -> Proposal:
    reasons = _reasons(cluster, plan.steps)
    moves = [
        _move(cluster, plan, int(row), throttle, reasons[int(row)])
        for row in np.nonzero((plan.replicas != cluster.replicas).any(axis=1))[0]
    ]
    return Proposal(
        format=FORMAT,
        mode=mode,
        throttle=throttle,
        goals=_goals(cluster, plan),
        moves=moves,
        directory_moves=[
            DirectoryChange(*m.partition, m.broker, m.src, m.to, int(m.size_bytes), m.why)
            for m in directory_moves
        ],
        problems=[p.message for p in (*plan.problems, *problems)],
        bytes=sum(m.bytes for m in moves),
        seconds=seconds(moves, throttle),
        leader_changes=sum(m.before[0] != m.after[0] for m in moves),
        without_preferred_leader=[f"{m.topic}-{m.partition}" for m in moves if m.leader_waits],
        brokers=list(brokers),
    )


def _goals(cluster: Cluster, plan: Plan) -> list[Goal]:
    hard = [Goal(h.name, h.title, True, plan.before[h.name], plan.after[h.name]) for h in HARD]
    before, after = _deviations(cluster), _deviations(cluster.moved_to(plan.replicas))
    soft = [
        Goal(g.name, g.title, False, plan.before[g.name], plan.after[g.name],
             float(before[n]), float(after[n]))
        for n, g in enumerate(LOADS)
    ]  # fmt: skip
    spread = plan.before[TOPIC_SPREAD], plan.after[TOPIC_SPREAD]
    return [*hard, *soft, Goal(TOPIC_SPREAD, TOPIC_SPREAD_TITLE, False, *spread)]


def _deviations(cluster: Cluster) -> Floats:
    """By soft goal: the standard deviation over live brokers, relative to their mean."""
    load = State(cluster, LOADS).load[:, cluster.live]
    mean = load.mean(axis=1)
    relative: Floats = np.divide(load.std(axis=1), mean, out=np.zeros_like(mean), where=mean > 0)
    return relative


def _move(cluster: Cluster, plan: Plan, row: int, throttle: float, why: str) -> Move:
    before, after = cluster.ids(cluster.replicas[row]), cluster.ids(plan.replicas[row])
    size = int(cluster.size_bytes[row]) * len(set(after) - set(before))
    name = cluster.name(row)
    return Move(name.topic, name.partition, before, after, size, round(size / throttle, 3), why)


def _reasons(cluster: Cluster, steps: Sequence[SearchStep]) -> Mapping[int, str]:
    """Partition → why it moves; several steps in their order."""
    found: dict[int, list[SearchStep]] = {}
    for step in steps:
        found.setdefault(step.partition, []).append(step)
    return {row: "; ".join(_why(cluster, step) for step in its) for row, its in found.items()}


def _why(cluster: Cluster, step: SearchStep) -> str:
    src, to = cluster.broker_ids[step.src], cluster.broker_ids[step.to]
    what = f"{'leader' if step.kind is StepKind.LEADER else 'replica'} {src} → {to}"
    match step.goal:
        case "drain":
            assert step.goal == DRAIN
            return f"{what}: broker {src} is removed"
        case "rack-aware":
            return f"{what}: replicas shared a rack"
        case "disk-capacity" | "replica-capacity":
            return f"{what}: broker {src} has more than it has room for"
        case "topic-spread":
            return f"{what}: broker {src} has more of the topic's replicas than others"
    shares = f"broker {src} has {step.src_use:.0%} of its share, broker {to} {step.to_use:.0%}"
    return f"{what}: {step.goal}: {shares}"
