"""The search: repairs of hard goals, then one soft goal after the other, until nothing improves.

    plan = optimize(cluster, Options(mode="full"))
    plan.replicas          # P × R: the assignment afterwards
    plan.steps             # why each replica and each leader moved

A step for a goal is a leader that changes, a replica that moves, or two replicas that swap their
brokers. It is taken if no hard goal refuses it, all goals together improve (steps.py has their
weights), and it removes more imbalance than its bytes are worth (`Options.price`). So the weighted
sum of the scores only falls, and the search ends in a state in which no step is left: its
proposal, carried out, proposes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from odradek_operator.kafka.balance.goals import HARD, LOADS, NAMES
from odradek_operator.kafka.balance.goals.base import EPSILON
from odradek_operator.kafka.balance.goals.topic_spread import NAME as TOPIC_SPREAD
from odradek_operator.kafka.balance.goals.topic_spread import TopicSpread
from odradek_operator.kafka.balance.model import Bools, Cluster, Floats, Ints, Numbers
from odradek_operator.kafka.balance.repair import UnmetGoal, drain, repair
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import Chooser, Hopeful, SearchStep, StepKind
from odradek_operator.kafka.balance.swaps import swap_from

MODES = ("full", "add-brokers", "remove-brokers", "hot-disk", "leaders-only")
PRICE = 0.1  # moving 1 % of all bytes has to remove 0.1 % of imbalance
PASSES_MAX = 60  # over all goals; most of them look at a few brokers only
# Replicas of a broker that are tried in a row without success, before the search goes on with the
# next broker. Candidates are tried in the order of their value, so later ones seldom succeed.
FAILURES_MAX = 40
HOT = 0.8  # of the room of a disk: above it is hot
ONLY_LEADERS = frozenset({"bytes-out", "leader-bytes-in", "leaders"})


@dataclass(frozen=True, slots=True)
class Options:
    mode: str = "full"
    brokers: tuple[int, ...] = ()  # ids: those that were added, or that are to be removed
    goals: tuple[str, ...] = NAMES  # soft goals, always in the order of NAMES
    price: float = PRICE
    seed: int = 0  # decides between brokers that are equally good

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is unknown; the modes are {', '.join(MODES)}")
        if unknown := [g for g in self.goals if g not in NAMES]:
            raise ValueError(f"goal {unknown[0]!r} is unknown; the goals are {', '.join(NAMES)}")
        if self.mode in ("add-brokers", "remove-brokers") and not self.brokers:
            raise ValueError(f"mode {self.mode} needs the ids of brokers")


@dataclass(slots=True)
class Plan:
    """The result of the search. Scores are by the names of goals, of hard ones the violations."""

    replicas: Ints
    steps: list[SearchStep]
    before: dict[str, float]
    after: dict[str, float]
    problems: list[UnmetGoal] = field(default_factory=list)  # what could not be repaired, and why
    converged: bool = True


def optimize(cluster: Cluster, options: Options = Options()) -> Plan:  # noqa: B008 (frozen)
    order = np.random.default_rng(options.seed).permutation(cluster.brokers)
    search = _Search(_renumbered(cluster, order), options)
    before = search.scores()
    converged = search.run()
    after = search.scores()
    back: Ints = np.append(order, -1).astype(np.int32)  # the last entry is NO_BROKER's
    steps = [s._replace(src=int(order[s.src]), to=int(order[s.to])) for s in search.steps]
    problems = search.problems
    return Plan(back[search.state.replicas], steps, before, after, problems, converged)


def _renumbered(cluster: Cluster, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Cluster:
    """The same cluster with its brokers in another order: ties go to the first."""
    number: Ints = np.full(cluster.brokers + 1, -1, dtype=np.int32)
    number[order] = np.arange(cluster.brokers)
    return Cluster(
        cluster.broker_ids[order], cluster.racks[order], cluster.live[order],
        cluster.receives[order], cluster.disk_bytes_max[order], cluster.replicas_max[order],
        cluster.topics, cluster.topic, cluster.partition, number[cluster.replicas],
        cluster.size_bytes, cluster.bytes_in, cluster.bytes_out, cluster.fixed,
        cluster.below_min_isr, cluster.lagging,
    )  # fmt: skip


class _Search:
    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._options = options
        named = cluster.numbers(options.brokers)
        leaving = named if options.mode == "remove-brokers" else []
        self.state = State(cluster, LOADS, leaving)
        self.steps: list[SearchStep] = []
        self.problems: list[UnmetGoal] = []
        self._spread = TopicSpread(self.state)
        self._wanted = [g for g, goal in enumerate(LOADS) if goal.name in options.goals]
        self._to: Bools = np.ones(cluster.brokers, dtype=np.bool_)
        if options.mode == "add-brokers":
            self._to[:] = False
            self._to[named] = True
        self._failures = 0  # in a row, of the broker that is looked at
        # What was tried for a broker → the last step before that; see _fresh.
        self._tried: dict[Hashable, int] = {}
        self._choose = Chooser(self.state, HARD, self._wanted, options.price, self._to)

    def scores(self) -> dict[str, float]:
        self.state.recount()
        found: dict[str, float] = {h.name: float(h.violations(self.state)) for h in HARD}
        found |= {g.name: float(s) for g, s in zip(LOADS, self.state.scores(), strict=True)}
        found[TOPIC_SPREAD] = self._spread.score(self.state)
        return found

    def run(self) -> bool:
        """True if it ended because nothing was left to improve."""
        mode = self._options.mode
        if mode == "remove-brokers":
            self.problems += drain(self.state, self._choose, self.steps)
            return True
        for _ in range(PASSES_MAX):
            known, everything = len(self.steps), not self._tried
            if mode in ("full", "add-brokers"):  # again: steps for other goals may have made room
                self.problems = repair(self.state, self._choose, self.steps)
            self.state.recount()
            for goal in self._wanted:
                self._improve(goal)
            if TOPIC_SPREAD in self._options.goals and mode in ("full", "add-brokers"):
                self._spread_topics()
            if len(self.steps) == known and everything:
                return True
            if len(self.steps) == known:
                self._tried.clear()
        return False

    def _fresh(self, what: Hashable, src: int, to: Bools) -> Bools:
        """Those of `to` that may take something now, although they did not the last time.

        Without this, the search would spend its time on failures: in a cluster of 1,000 brokers a
        pass tries 100,000 candidates without success, and there are a dozen passes. Steps of other
        partitions' replicas may matter too, if seldom: so the last pass looks at everything.
        """
        tried = self._tried.get(what, -1)
        self._tried[what] = self.state.clock
        if self.state.changed[src] > tried:
            return to
        fresh: Bools = to & (self.state.changed > tried)
        return fresh

    # -- one goal ----------------------------------------------------------------------------------

    def _improve(self, goal: int) -> None:
        if self._options.mode == "hot-disk":
            if LOADS[goal].name == "disk":
                self._cool_disks(goal)
            return
        state, replicas = self.state, self._options.mode != "leaders-only"
        everyone: Bools = state.open & self._to
        if LOADS[goal].name in ONLY_LEADERS:
            for src in self._over(goal):
                self._push_leaders(goal, src, self._fresh(("leaders", goal, src), src, everyone))
            for src in self._fullest(goal):
                to = self._under(goal) & everyone
                self._push_leaders(goal, src, self._fresh(("lack leaders", goal, src), src, to))
        if not replicas:
            return
        for src in self._over(goal):
            self._push_replicas(goal, src, self._fresh(("replicas", goal, src), src, everyone))
        for src in self._fullest(goal):
            to = self._under(goal) & everyone
            self._push_replicas(goal, src, self._fresh(("lack replicas", goal, src), src, to))
        if self._options.mode == "full":
            for src in self._over(goal):
                swap_from(self._choose, goal, src, self.steps, self._fresh)

    def _over(self, goal: int) -> list[int]:
        """Brokers above their band, the fullest first."""
        above = self.state.load[goal] - self.state.upper[goal]
        return [
            int(b) for b in np.argsort(-above, kind="stable") if above[b] > self.state.negligible
        ]

    def _under(self, goal: int) -> Bools:
        under: Bools = self.state.lower[goal] - self.state.load[goal] > self.state.negligible
        return under

    def _fullest(self, goal: int) -> Iterator[int]:
        """Brokers above their share, the fullest first, as long as others are below their band."""
        state = self.state
        spare = state.load[goal] - state.target[goal]
        for broker in np.argsort(-spare, kind="stable"):
            if spare[broker] <= EPSILON or not self._under(goal).any():
                return
            if state.cluster.live[broker] and np.isfinite(state.upper[goal, broker]):
                yield int(broker)

    def _before(self, goal: int) -> list[int]:
        return [g for g in self._wanted if g < goal]

    def _enough(self, goal: int, src: int, to: Numbers) -> bool:
        """Whether `src` is in its band, and no destination lacks anything."""
        state = self.state
        if state.load[goal, src] > state.upper[goal, src] + state.negligible:
            return False
        return state.load[goal, src] <= state.target[goal, src] or not bool(
            (state.excess[goal].take(to) > state.negligible).any()
        )

    def _push_leaders(self, goal: int, src: int, to: Bools) -> None:
        """Leadership goes to other replicas: it costs no bytes."""
        state, numbers = self.state, np.nonzero(to)[0]
        if not len(numbers):
            return
        rows, places = state.on(src)
        led = rows[places == 0]
        weight = state.per_leader[led]
        value = weight[:, goal] - weight[:, self._before(goal)].sum(axis=1)
        order = _ordered(value, weight[:, goal] > EPSILON)
        hopeful = Hopeful(state, lambda some: self._choose.hopeful_leaders(goal, led[some], to))
        for index in self._candidates(goal, src, numbers, order, hopeful):
            step = self._choose.leader(goal, int(led[index]), to)
            self._failures = 0 if self._take(step) else self._failures + 1

    def _push_replicas(self, goal: int, src: int, to: Bools) -> None:
        state, numbers = self.state, np.nonzero(to)[0]
        if not len(numbers):
            return
        rows, places = state.on(src)
        weights = state.per_replica[rows] + np.where(
            places[:, None] == 0, state.per_leader[rows], 0.0
        )
        weight = weights[:, goal]
        # A step removes at most its weight on both sides. The less it changes for earlier goals
        # relative to this one, the more likely it is possible.
        value = 2 * weight - self._options.price * state.size[rows]
        possible = (value > EPSILON) & (weight > EPSILON) & ~state.cluster.fixed[rows]
        order = _ordered(value - weights[:, self._before(goal)].sum(axis=1), possible)
        hopeful = Hopeful(state, lambda some: self._choose.hopeful_replicas(
            goal, src, rows[some], places[some], numbers))  # fmt: skip
        large: list[int] = []

        def fits(index: int) -> bool:
            if weight[index] <= state.load[goal, src] - state.lower[goal, src]:
                return True
            large.append(index)
            return False

        # First those that leave the source in its band, then larger ones.
        for some, when in ((order, fits), (large, None)):
            for index in self._candidates(goal, src, numbers, some, hopeful, when):
                step = self._choose.replica(goal, int(rows[index]), int(places[index]), numbers)
                self._failures = 0 if self._take(step) else self._failures + 1

    def _candidates(
        self,
        goal: int,
        src: int,
        to: Numbers,
        order: Sequence[int],
        hopeful: Hopeful,
        when: Callable[[int], bool] | None = None,
    ) -> Iterator[int]:
        """Those that are worth a try, until enough has moved or too many have failed in a row."""
        self._failures, clock = 0, -1
        for position, index in enumerate(order):
            if self._failures > FAILURES_MAX:
                return
            if self.state.clock != clock and self._enough(goal, src, to):
                return
            clock = self.state.clock
            if when is not None and not when(index):
                continue
            if hopeful.at(order, position):
                yield index
            else:
                self._failures += 1

    def _take(self, step: SearchStep | None) -> bool:
        if step is None:
            return False
        if step.kind is StepKind.LEADER:
            self.state.lead(step.partition, step.place)
        else:
            self.state.move(step.partition, step.place, step.to)
        self.steps.append(step)
        return True

    # -- others ------------------------------------------------------------------------------------

    def _spread_topics(self) -> None:
        state, spread = self.state, self._spread
        for topic, src in spread.crowded(state).tolist():
            to = np.nonzero(self._fresh(("topic", topic, src), src, state.open & self._to))[0]
            if not len(to):
                continue
            rows, places = state.on(src)
            own = state.cluster.topic[rows] == topic
            rows, places = rows[own], places[own]
            failures = 0
            for index in np.argsort(state.size[rows], kind="stable"):
                gain = spread.gain(state, topic, src)
                if gain.max() <= EPSILON or failures > FAILURES_MAX:
                    break
                step = self._choose.for_topic(int(rows[index]), int(places[index]), gain, to)
                failures = 0 if self._take(step) else failures + 1

    def _cool_disks(self, goal: int) -> None:
        """Replicas leave brokers whose disks are hot, and nothing else moves."""
        state = self.state
        room = state.cluster.disk_bytes_max
        for src in np.argsort(-state.used_bytes / room, kind="stable"):
            rows, places = state.on(int(src))
            for index in np.argsort(-state.size[rows], kind="stable"):
                if state.used_bytes[src] <= HOT * room[src]:
                    break
                size = state.cluster.size_bytes[rows[index]]
                cool = np.nonzero((state.used_bytes + size <= HOT * room) & state.open)[0]
                self._take(
                    self._choose.replica(
                        goal, int(rows[index]), int(places[index]), cool, forced=True
                    )
                )


def _ordered(value: Floats, possible: Bools) -> list[int]:
    """The indexes of what is possible, the most valuable first."""
    found = np.nonzero(possible)[0]
    order: list[int] = found[np.argsort(-value[found], kind="stable")].tolist()
    return order
