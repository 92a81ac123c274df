"""One step of the search: where a replica or a leader goes, if anywhere.

A `Chooser` looks at all possible brokers at once; those that a hard goal refuses are left out
first. `gains` has, for each goal and broker, what the step would remove from the goal's score. A
step has to improve all goals together, and a goal is worth four times the next one: an earlier
goal gives way only to a much larger gain of a later one. A strict order would be worse: a broker
with one huge partition, slightly above its band for bytes in, could never lead a second, tiny one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from odradek_operator.kafka.balance.goals import TOPIC_SPREAD
from odradek_operator.kafka.balance.goals.base import EPSILON, beyond
from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import NO_BROKER, Bools, Floats, Ints, Numbers
from odradek_operator.kafka.balance.state import State

ORDER = 4.0  # a goal is worth so many times the next one
WASTE = 0.1  # a step has to use a tenth of what it moves; tiny gains would never end
BLOCK = 48  # candidates that are judged at once
HOPEFUL_MAX = 200  # with more destinations it is cheaper to try candidates one by one
NEARLY = 0.999  # brokers that are nearly the best are compared by their whole load


class StepKind(Enum):
    REPLICA = "replica"
    LEADER = "leader"


class SearchStep(NamedTuple):
    kind: StepKind
    partition: int
    place: int  # in the list of replicas
    src: int
    to: int
    goal: str  # why: the name of the goal
    src_use: float = 0.0  # of the goal, before: 1.0 is the broker's share
    to_use: float = 0.0


class Hopeful:
    """Which candidates of a list are worth a try; found for a block of them at once.

    Most candidates fail, and one that is tried alone costs as much as a block of them.
    """

    def __init__(self, state: State, judge: Callable[[list[int]], Bools]) -> None:
        self._state = state
        self._judge = judge
        self._known: tuple[Sequence[int], int, int] = ((), 0, -1)  # list, first position, clock
        self._found: Bools = np.zeros(0, dtype=np.bool_)

    def at(self, order: Sequence[int], position: int) -> bool:
        known, first, clock = self._known
        beyond_block = not first <= position < first + len(self._found)
        if known is not order or clock != self._state.clock or beyond_block:
            first, self._known = position, (order, position, self._state.clock)
            self._found = self._judge(list(order[position : position + BLOCK]))
        return bool(self._found[position - first])


class Chooser:
    def __init__(
        self,
        state: State,
        hard: Sequence[HardGoal],
        wanted: Sequence[int],  # numbers of the soft goals that count
        price: float,
        to: Bools,  # brokers that the mode allows as destinations
    ) -> None:
        self.state = state
        self.price = price
        self._hard = hard
        self._wanted = list(wanted)
        # Row g: what each goal is worth relative to goal g, or to the topics' spread, the last one.
        goals = np.arange(len(state.goals) + 1, dtype=np.float64)
        counts = np.isin(goals[:-1], self._wanted)
        self._weights: Floats = np.where(counts, ORDER ** (goals[:, None] - goals[:-1]), 0.0)
        self._to = to

    def allowed(self, partition: int, place: int, to: Numbers) -> Numbers:
        """Those of the brokers `to` that all hard goals allow."""
        for goal in self._hard:
            if not len(to):
                break
            to = to[goal.allowed(self.state, partition, place, to)]
        return to

    def allowed_but_for_room(self, partition: int, place: int, to: int) -> bool:
        """Whether the hard goals allow it, apart from those about the load of brokers."""
        one = np.array([to], dtype=np.intp)
        rules = (goal for goal in self._hard if not goal.of_capacity)
        return all(goal.allowed(self.state, partition, place, one)[0] for goal in rules)

    def gains(self, src: int, to: Numbers, weight: Floats) -> Floats:
        """G × brokers: what leaves the score of each goal if `weight` goes from `src` to them."""
        state = self.state
        load, lower, upper = state.load, state.lower, state.upper
        left = beyond(load[:, src] - weight, lower[:, src], upper[:, src])
        relieved = state.excess[:, src] - left
        # `take` is several times faster than [:, to].
        more = load.take(to, axis=1) + weight[:, None]
        after = beyond(more, lower.take(to, axis=1), upper.take(to, axis=1))
        gains: Floats = relieved[:, None] + state.excess.take(to, axis=1) - after
        return gains

    def improves(self, goal: int, gains: Floats) -> Bools:
        """The columns of `gains` in which all goals together improve, as seen from `goal`."""
        return np.asarray(self._weights[goal] @ gains > EPSILON)

    def replica(
        self, goal: int, partition: int, place: int, to: Numbers, *, forced: bool = False
    ) -> SearchStep | None:
        """The best broker for a replica, if the gain is worth its bytes, or if `forced`."""
        state = self.state
        to = self.allowed(partition, place, to)
        if not len(to):
            return None
        weight = state.weight(partition, place)
        gains = self.gains(int(state.replicas[partition, place]), to, weight)
        if not forced:
            least = self.price * state.size[partition] + WASTE * weight[goal] + EPSILON
            enough = (gains[goal] > least) & self.improves(goal, gains)
            to, gains = to[enough], gains[:, enough]
        best = self._best(gains[goal], to)
        if best is None:
            return None
        return self._step(StepKind.REPLICA, partition, place, best, goal)

    def leader(self, goal: int, partition: int, to: Bools) -> SearchStep | None:
        """The best of the other replicas, if it may lead."""
        state, cluster = self.state, self.state.cluster
        if cluster.fixed[partition] or cluster.below_min_isr[partition]:
            return None
        row = state.replicas[partition, : cluster.factor[partition]]
        possible = to[row] & cluster.live[row] & ~self._behind(partition)
        possible[0] = False
        others = row[possible].astype(np.intp)
        if not len(others):
            return None
        gains = self.gains(int(row[0]), others, state.per_leader[partition])
        least = WASTE * state.per_leader[partition, goal] + EPSILON
        enough = (gains[goal] > least) & self.improves(goal, gains)
        best = self._best(gains[goal, enough], others[enough])
        if best is None:
            return None
        return self._step(StepKind.LEADER, partition, row.tolist().index(best), best, goal)

    def hopeful_replicas(
        self, goal: int, src: int, rows: Numbers, places: Numbers, to: Numbers
    ) -> Bools:
        """For each replica: whether `replica` may find a broker, if no hard goal refuses it."""
        if len(to) > HOPEFUL_MAX:
            return np.ones(len(rows), dtype=np.bool_)
        state = self.state
        lead = np.where(places[:, None] == 0, state.per_leader[rows], 0.0)
        weights = (state.per_replica[rows] + lead).T
        least = self.price * state.size[rows] + WASTE * weights[goal] + EPSILON
        found = self._hopeful(goal, src, weights, to[None, :], least)
        return np.asarray(found.any(axis=1))

    def hopeful_leaders(self, goal: int, rows: Numbers, to: Bools) -> Bools:
        """The same for leaders."""
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        replicas = self.state.replicas[rows]
        weights = self.state.per_leader[rows].T
        least = WASTE * weights[goal] + EPSILON
        found = self._hopeful(goal, int(replicas[0, 0]), weights, replicas, least)
        others = to[replicas] & (replicas != NO_BROKER)
        others[:, 0] = False
        return np.asarray((found & others).any(axis=1))

    def _hopeful(
        self, goal: int, src: int, weights: Floats, to: Numbers | Ints, least: Floats
    ) -> Bools:
        """n × brokers: whether a step would be taken. `weights`: G × n; `to`: n or 1 × brokers."""
        state = self.state
        lower, upper = state.lower, state.upper
        left = beyond(state.load[:, src, None] - weights, lower[:, src, None], upper[:, src, None])
        relieved = state.excess[:, src, None] - left
        more = state.load.take(to, axis=1) + weights[:, :, None]
        after = beyond(more, lower.take(to, axis=1), upper.take(to, axis=1))
        gains = relieved[:, :, None] + state.excess.take(to, axis=1) - after
        total = (self._weights[goal] @ gains.reshape(len(gains), -1)).reshape(gains.shape[1:])
        # Sums in another order have other rounding errors: who may improve is looked at again.
        found: Bools = (gains[goal] > least[:, None]) & (total > EPSILON / 2)
        return found

    def _behind(self, partition: int) -> Bools:
        """By place: whether the broker there has a replica now that is not in sync."""
        cluster, factor = self.state.cluster, self.state.cluster.factor[partition]
        if not cluster.lagging[partition].any():
            return np.zeros(factor, dtype=np.bool_)
        old = cluster.replicas[partition, :factor][cluster.lagging[partition, :factor]]
        return np.isin(self.state.replicas[partition, :factor], old)

    def for_topic(self, partition: int, place: int, gain: Floats, to: Numbers) -> SearchStep | None:
        """A move that spreads a topic; all goals together improve."""
        state = self.state
        least = self.price * state.size[partition] + EPSILON
        to = self.allowed(partition, place, to[gain.take(to) > least])
        if not len(to):
            return None
        src = int(state.replicas[partition, place])
        gains = self.gains(src, to, state.weight(partition, place))
        gain = gain.take(to)
        enough = self._weights[-1] @ gains + gain > EPSILON
        best = self._best(gain[enough], to[enough])
        if best is None:
            return None
        return SearchStep(StepKind.REPLICA, partition, place, src, best, TOPIC_SPREAD)

    def emptiest(self, partition: int, place: int, to: Bools, why: str) -> SearchStep | None:
        """For repairs: the allowed broker with the least load, whatever the soft goals say."""
        state = self.state
        allowed = self.allowed(partition, place, np.nonzero(to)[0])
        if not len(allowed):
            return None
        src = int(state.replicas[partition, place])
        gains = self.gains(src, allowed, state.weight(partition, place))
        harm = np.minimum(gains[self._wanted], 0.0).sum(axis=0)
        best = self._best(harm - harm.min() + 1.0, allowed)
        assert best is not None
        return SearchStep(StepKind.REPLICA, partition, place, src, best, why)

    def _best(self, gain: Floats, to: Numbers) -> int | None:
        """Among the brokers with nearly the largest gain, the one with the least load over all
        goals.
        """
        if not len(to):
            return None
        most = gain.max()
        nearly = to[gain >= most * (NEARLY if most > 0 else 1)]
        return int(nearly[self.state.pressure.take(nearly).argmin()])

    def _step(self, kind: StepKind, partition: int, place: int, to: int, goal: int) -> SearchStep:
        state = self.state
        src = int(state.replicas[partition, 0 if kind is StepKind.LEADER else place])
        uses = state.use(src, goal), state.use(to, goal)
        return SearchStep(kind, partition, place, src, to, state.goals[goal].name, *uses)
