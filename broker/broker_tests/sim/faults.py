"""The schedule of faults: drawn from a seed, applied to any world, shrunk when a run fails.

A fault begins at a time and ends by itself. Which hosts it hits is drawn in advance; whether it
is applicable is decided when it begins (a host that is down is not paused), so removing a fault
from the schedule leaves the others unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from broker_tests.sim.network import Link, Weather
from broker_tests.sim.world import HostCrashedError, World


class Kind(Enum):
    CRASH = "crash"  # kill -9 and power loss alike: what was not flushed may be gone
    CRASH_ALL = "crash-all"
    PAUSE = "pause"
    ISOLATE = "isolate"
    CUT = "cut"  # one direction only
    SPLIT = "split"
    STORM = "storm"  # loss, duplicates, stragglers
    WIPE = "wipe"
    SLOW_DISK = "slow-disk"
    FLAKY = "flaky"  # dies in the middle of its work, again and again
    # Drawn and carried out by cluster_ambush.py.
    STALL = "stall"
    AMBUSH_DEATH = "ambush-death"
    AMBUSH_LATE = "ambush-late"
    AMBUSH_TWICE = "ambush-twice"
    # Drawn and carried out by disk_faults.py.
    DIR_FAILS = "dir-fails"  # EIO
    DIR_FULL = "dir-full"  # little room, then none; and room again
    STARVE_REQUESTS = "starve-requests"  # of a broker: read late or never, but heartbeats are
    STARVE_HEARTBEATS = "starve-heartbeats"  # the reverse


@dataclass(frozen=True)
class Fault:
    kind: Kind
    at_ms: int
    duration_ms: int
    nodes: tuple[int, ...]  # the nodes that it hits; for a cut: from, to; for a split: one side
    chases_leader: bool = False  # hits the leader at that moment, if there is one

    def __str__(self) -> str:
        end_ms = self.at_ms + self.duration_ms
        return f"{self.at_ms}..{end_ms} {self.kind.value} {','.join(map(str, self.nodes))}"


# How often each kind is drawn, and its longest duration in ms.
MIX: dict[Kind, tuple[int, int]] = {
    Kind.CRASH: (6, 1500),
    Kind.CRASH_ALL: (1, 500),
    Kind.PAUSE: (3, 2000),
    Kind.ISOLATE: (4, 2000),
    Kind.CUT: (3, 2000),
    Kind.SPLIT: (3, 2000),
    Kind.STORM: (3, 1500),
    Kind.WIPE: (1, 500),
    Kind.SLOW_DISK: (2, 1500),
    Kind.FLAKY: (4, 5000),
}
LEADER_KINDS = (Kind.CRASH, Kind.PAUSE, Kind.ISOLATE, Kind.SLOW_DISK)
GAP_MAX_MS = 900  # between the beginnings of two faults


def draw_schedule(rng: Random, node_ids: Sequence[int], end_ms: int) -> tuple[Fault, ...]:
    # A seed uses some of the kinds only, because a frequent kind would hide the others.
    kinds = [kind for kind in MIX if rng.random() < 0.5] or [rng.choice(list(MIX))]
    weights = [MIX[kind][0] for kind in kinds]
    faults = []
    at_ms = rng.randint(100, GAP_MAX_MS)
    while at_ms < end_ms:
        kind = rng.choices(kinds, weights)[0]
        longest = min(MIX[kind][1], end_ms - at_ms)
        duration_ms = rng.randint(min(10, longest), longest)
        nodes = _draw_nodes(rng, kind, node_ids)
        chases_leader = kind in LEADER_KINDS and rng.random() < 0.5
        faults.append(Fault(kind, at_ms, duration_ms, nodes, chases_leader))
        # Sometimes at the same time: designs often miss overlapping faults.
        at_ms += rng.choice((0, rng.randint(1, GAP_MAX_MS), rng.randint(1, GAP_MAX_MS)))
    return tuple(faults)


def _draw_nodes(rng: Random, kind: Kind, node_ids: Sequence[int]) -> tuple[int, ...]:
    if kind is Kind.CRASH_ALL or kind is Kind.STORM:
        return tuple(node_ids)
    if kind is Kind.CUT:
        return tuple(rng.sample(node_ids, 2))
    if kind is Kind.SPLIT or kind is Kind.FLAKY:
        return tuple(sorted(rng.sample(node_ids, rng.randint(1, len(node_ids) - 1))))
    return (rng.choice(node_ids),)


class Injector:
    """Applies a schedule to a world.

    `may_wipe(node_id)`: whether that disk may be lost now; `leader()`: the node that leads.
    """

    def __init__(
        self,
        world: World,
        may_wipe: Callable[[int], bool],
        leader: Callable[[], int | None],
        calm: Weather,
    ) -> None:
        self._world = world
        self._may_wipe = may_wipe
        self._leader = leader
        self._calm = calm
        world.network.weather = calm
        self._rng = world.rng("storm")
        self._flaky_rng = world.rng("flaky")
        # Nodes ask for these two: hosts whose flushes are slow now (ms), and flaky hosts.
        self.slow_disks: dict[int, int] = {}
        self.flaky: dict[int, float] = {}

    def crash_point(self, node_id: int, *, critical: bool = False) -> None:
        """Between two effects of a node: a flaky one may die here.

        Critical is right after something that must not be forgotten (a vote): few such moments
        come, so each is used.
        """
        chance = self.flaky.get(node_id)
        if chance is not None and self._flaky_rng.random() < (0.5 if critical else chance):
            raise HostCrashedError

    def schedule(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._world.at(fault.at_ms, self._begin, fault)

    def heal(self) -> None:
        """Everything works again: links, weather, disks, processes."""
        world = self._world
        world.record("heal")
        world.network.mend_all()
        world.network.weather = self._calm
        self.slow_disks.clear()
        self.flaky.clear()
        for node_id in world.hosts:
            world.resume(node_id)
            world.start(node_id)

    def _begin(self, fault: Fault) -> None:
        world = self._world
        leader = self._leader() if fault.chases_leader else None
        if leader is not None:
            fault = replace(fault, nodes=(leader,))
        world.record(f"fault {fault}")
        first = fault.nodes[0]
        match fault.kind:
            case Kind.CRASH | Kind.CRASH_ALL:
                for node_id in fault.nodes:
                    world.crash(node_id)
            case Kind.PAUSE:
                world.pause(first)
            case Kind.ISOLATE | Kind.CUT | Kind.SPLIT:
                world.network.cut(self._links(fault))
            case Kind.STORM:
                world.network.weather = Weather(
                    latency_max_ms=self._rng.randint(8, 60),
                    loss=self._rng.uniform(0.0, 0.3),
                    duplication=self._rng.uniform(0.0, 0.2),
                    straggler=self._rng.uniform(0.0, 0.1),
                    reset=self._rng.choice((0.0, 0.02, 0.1)),
                )
            case Kind.WIPE:
                if self._may_wipe(first):
                    world.wipe(first)
            case Kind.SLOW_DISK:
                self.slow_disks[first] = self._rng.randint(20, 400)
            case Kind.FLAKY:
                chance = self._rng.choice((0.0, 0.02))
                self.flaky.update(dict.fromkeys(fault.nodes, chance))
        world.after(fault.duration_ms, self._end, fault)

    def _end(self, fault: Fault) -> None:
        world = self._world
        match fault.kind:
            case Kind.CRASH | Kind.CRASH_ALL | Kind.WIPE:
                for node_id in fault.nodes:
                    world.start(node_id)
            case Kind.PAUSE:
                world.resume(fault.nodes[0])
            case Kind.ISOLATE | Kind.CUT | Kind.SPLIT:
                world.network.repair(self._links(fault))
            case Kind.STORM:
                world.network.weather = self._calm
            case Kind.SLOW_DISK:
                self.slow_disks.pop(fault.nodes[0], None)
            case Kind.FLAKY:
                for node_id in fault.nodes:
                    self.flaky.pop(node_id, None)

    def _links(self, fault: Fault) -> list[Link]:
        if fault.kind is Kind.CUT:
            return [(fault.nodes[0], fault.nodes[1])]
        inside = set(fault.nodes)
        outside = [node_id for node_id in self._world.hosts if node_id not in inside]
        there = [(a, b) for a in fault.nodes for b in outside]
        return there + [(b, a) for a, b in there]


def shrink(
    faults: tuple[Fault, ...], fails: Callable[[tuple[Fault, ...]], bool]
) -> tuple[Fault, ...]:
    """A part of the schedule that still fails and of which nothing can be left out.

    Takes out halves, then quarters, and so on down to single faults.
    """
    size = max(1, len(faults) // 2)
    while True:
        at = 0
        removed = False
        while at < len(faults):
            fewer = faults[:at] + faults[at + size :]
            if fails(fewer):
                faults, removed = fewer, True
            else:
                at += size
        if size == 1 and not removed:
            return faults
        if not removed:
            size = max(1, size // 2)
