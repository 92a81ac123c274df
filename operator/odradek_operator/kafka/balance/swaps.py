"""Two replicas swap their brokers: the last resort, if moving only one would unbalance a broker.

Tried for brokers that are still above their band, with the brokers that are emptiest for the goal.
All pairs of a few dozen replicas are compared at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

import numpy as np

from odradek_operator.kafka.balance.goals.base import EPSILON, beyond
from odradek_operator.kafka.balance.model import Bools, Floats, Ints
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import Chooser, SearchStep, StepKind

PARTNERS_MAX = 8  # brokers that are tried for one that has too much
Fresh: TypeAlias = Callable[[Hashable, int, Bools], Bools]

REPLICAS_MAX = 48  # of each of the two
PAIRS_MAX = 12  # of the best pairs, tried in full


def swap_from(choose: Chooser, goal: int, src: int, steps: list[SearchStep], fresh: Fresh) -> None:
    """Swaps until `src` is inside its band, or no pair helps. `fresh`: see search.py."""
    state = choose.state
    partners = np.argsort(state.load[goal] - state.target[goal], kind="stable")
    for to in partners[:PARTNERS_MAX]:
        if to == src or not state.open[to] or not state.open[src]:
            continue
        if not fresh(("swap", goal, src, int(to)), src, state.open)[to]:
            continue
        while state.load[goal, src] > state.upper[goal, src] + state.negligible:
            found = _best_pair(choose, goal, src, int(to))
            if found is None:
                break
            for step in found:
                state.move(step.partition, step.place, step.to)
                steps.append(step)


def _best_pair(
    choose: Chooser, goal: int, src: int, to: int
) -> tuple[SearchStep, SearchStep] | None:
    state = choose.state
    ours, theirs = _candidates(state, goal, src, to), _candidates(state, goal, to, src)
    if not len(ours) or not len(theirs):
        return None
    gains = _pair_gains(state, src, to, _weights(state, ours), _weights(state, theirs))
    sizes = state.size[ours[:, 0]][:, None] + state.size[theirs[:, 0]][None, :]
    worth = gains[goal] - choose.price * sizes
    shape = gains.shape
    hold = choose.improves(goal, gains.reshape(shape[0], -1)).reshape(shape[1:])
    worth = np.where(hold & (worth > EPSILON), worth, 0.0)
    order = np.argsort(-worth, axis=None, kind="stable")[:PAIRS_MAX]
    for flat in order:
        i, j = divmod(int(flat), len(theirs))
        if worth[i, j] <= 0:
            return None
        one, other = (int(ours[i, 0]), int(ours[i, 1])), (int(theirs[j, 0]), int(theirs[j, 1]))
        if _fits(choose, one, other, src, to):
            name, uses = state.goals[goal].name, (state.use(src, goal), state.use(to, goal))
            return (
                SearchStep(StepKind.REPLICA, *one, src, to, name, *uses),
                SearchStep(StepKind.REPLICA, *other, to, src, name, uses[1], uses[0]),
            )
    return None


def _candidates(state: State, goal: int, src: int, to: int) -> Ints:
    """Rows (partition, place) of `src` that `to` has no replica of, the heaviest first."""
    rows, places = state.on(src)
    cluster = state.cluster
    free = ~(state.replicas[rows] == to).any(axis=1)
    free &= ~cluster.fixed[rows] & ~cluster.below_min_isr[rows]
    if cluster.racks[src] != cluster.racks[to]:
        taken = (cluster.racks[state.replicas[rows]] == cluster.racks[to]).any(axis=1)
        free &= ~taken | (state.per_rack_max[cluster.factor[rows]] > 1)
    rows, places = rows[free], places[free]
    weight = state.per_replica[rows, goal] + np.where(places == 0, state.per_leader[rows, goal], 0)
    order = np.argsort(-weight, kind="stable")
    if len(order) > REPLICAS_MAX:  # spread over all weights, so that differences of any size exist
        order = order[np.linspace(0, len(order) - 1, REPLICAS_MAX).astype(np.int64)]
    return np.stack([rows[order], places[order]], axis=1).astype(np.int32)


def _weights(state: State, candidates: Ints) -> Floats:
    lead = np.where(candidates[:, 1:] == 0, state.per_leader[candidates[:, 0]], 0.0)
    weights: Floats = state.per_replica[candidates[:, 0]] + lead
    return weights  # n × G


def _pair_gains(state: State, src: int, to: int, ours: Floats, theirs: Floats) -> Floats:
    """G × ours × theirs."""
    shift = ours.T[:, :, None] - theirs.T[:, None, :]
    gains = np.zeros_like(shift)
    for broker, sign in ((src, -1.0), (to, 1.0)):
        lower, upper = state.lower[:, broker], state.upper[:, broker]
        load = state.load[:, broker, None, None] + sign * shift
        after = beyond(load, lower[:, None, None], upper[:, None, None])
        gains += state.excess[:, broker, None, None] - after
    return gains


def _fits(choose: Chooser, one: tuple[int, int], other: tuple[int, int], src: int, to: int) -> bool:
    """Whether the hard goals allow both moves together. The counts of replicas do not change."""
    cluster, used = choose.state.cluster, choose.state.used_bytes
    if one[0] == other[0]:
        return False
    shift = cluster.size_bytes[one[0]] - cluster.size_bytes[other[0]]
    room = cluster.disk_bytes_max
    if (shift > 0 and used[to] + shift > room[to]) or (shift < 0 and used[src] - shift > room[src]):
        return False
    return choose.allowed_but_for_room(*one, to) and choose.allowed_but_for_room(*other, src)
