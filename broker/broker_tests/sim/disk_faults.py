"""Faults of storage and of starved connections: drawn from a seed, and carried out.

Most seeds (`calm`) have one such fault after the other, and time between them; so the
time until the cluster has recovered can be checked. The other seeds mix them with the faults of
faults.py; there only invariants are checked, and that everything heals in the end.

    dir-fails           EIO; at the end the device works again or is replaced by an empty one, and
                        the operator restarts the broker unless it has ended itself
    dir-full            little room, mostly none soon after; at the end there is room again
    starve-requests     what a broker asks of others is read late, or never; its heartbeats are
    starve-heartbeats   the reverse
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from broker_tests.sim.cluster_replication import Fetch, ListOffsets
from broker_tests.sim.disk_dirs import Directory
from broker_tests.sim.faults import Fault, Kind, draw_schedule
from broker_tests.sim.world import World
from odradek_broker.controller.stepping_aside import Level

DISK_KINDS = (Kind.DIR_FAILS, Kind.DIR_FULL)
STARVING = (Kind.STARVE_REQUESTS, Kind.STARVE_HEARTBEATS)
DURATIONS_MS = {
    Kind.DIR_FAILS: (300, 2_500),
    Kind.DIR_FULL: (300, 2_500),
    Kind.STARVE_REQUESTS: (200, 7_500),
    Kind.STARVE_HEARTBEATS: (200, 2_500),
}
CALM = 0.6
SETTLE_MS = 2_500  # from the end of a fault to the next one, in calm seeds
FULL_AFTER_MS_MAX = 300
LATE_MS = (150, 900)


def draw_disk_profile(
    rng: Random, node_ids: Sequence[int], end_ms: int
) -> tuple[tuple[Fault, ...], bool]:
    """The faults of a seed, and whether it is calm."""
    calm = rng.random() < CALM
    faults = list(_draw(rng, node_ids, end_ms, SETTLE_MS if calm else 0))
    if not calm:
        faults += draw_schedule(rng, node_ids, end_ms)
        faults.sort(key=lambda fault: fault.at_ms)
    return tuple(faults), calm


def _draw(rng: Random, node_ids: Sequence[int], end_ms: int, settle_ms: int) -> list[Fault]:
    faults = []
    at_ms = rng.randint(100, 900)
    while at_ms < end_ms:
        kind = rng.choices((*DISK_KINDS, *STARVING), (4, 4, 2, 1))[0]
        duration_ms = rng.randint(*DURATIONS_MS[kind])
        chases_leader = rng.random() < 0.5
        faults.append(Fault(kind, at_ms, duration_ms, (rng.choice(node_ids),), chases_leader))
        at_ms += duration_ms + settle_ms + rng.randint(0, 900)
    return faults


class Storage(Protocol):
    """The part of a node that faults use."""

    node_id: int

    @property
    def directories(self) -> list[Directory]: ...

    def restart(self) -> None:
        """An operator restarts the broker, if it runs with a directory offline."""

    def replace(self, one: Directory) -> None: ...


class DiskFaults:
    """`starved` are those whose requests wait: the source, and which kind of requests."""

    def __init__(
        self, world: World, nodes: Callable[[int], Storage], may_lose: Callable[[int], bool]
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._may_lose = may_lose
        self._rng = world.rng("starved")
        self.starved: dict[int, tuple[Kind, bool]] = {}  # kind, and whether late or never

    def begin(self, fault: Fault) -> None:
        # Each fault draws for itself: to take one out changes no other.
        world, rng = self._world, Random(f"{self._world.seed}/{fault}")
        world.record(f"fault {fault}")
        node_id = fault.nodes[0]
        if fault.kind in STARVING:
            self.starved[node_id] = fault.kind, rng.random() < 0.5
            world.after(fault.duration_ms, self.starved.pop, node_id, None)
            return
        one = rng.choice(self._nodes(node_id).directories)
        if fault.kind is Kind.DIR_FAILS:
            one.broken = True
        else:
            one.level = Level.LOW
            if rng.random() < 0.7:
                world.after(rng.randint(0, FULL_AFTER_MS_MAX), self._fill, one)
        world.after(fault.duration_ms, self._end, fault, one, rng.random() < 0.3)

    def _fill(self, one: Directory) -> None:
        if one.level is Level.LOW:
            one.level = Level.FULL

    def _end(self, fault: Fault, one: Directory, replaced: bool) -> None:
        node = self._nodes(fault.nodes[0])
        self._world.record(f"end of {fault}")
        if fault.kind is Kind.DIR_FAILS and replaced and self._may_lose(node.node_id):
            node.replace(one)
        elif fault.kind is Kind.DIR_FAILS:
            one.broken = False
        else:
            one.level = Level.ENOUGH
        node.restart()

    def heal(self, node_ids: Sequence[int]) -> None:
        self.starved.clear()
        for node_id in node_ids:
            node = self._nodes(node_id)
            for one in node.directories:
                one.broken, one.level = False, Level.ENOUGH
            node.restart()

    def delay_ms(self, source: int, message: object) -> int | None:
        """How much later a request is read; None is at once, -1 never."""
        starved = self.starved.get(source)
        if starved is None or not _concerns(starved[0], message):
            return None
        return self._rng.randint(*LATE_MS) if starved[1] else -1


def _concerns(kind: Kind, message: object) -> bool:
    heartbeat = getattr(message, "kind", None) == "heartbeat"
    if kind is Kind.STARVE_HEARTBEATS:
        return heartbeat
    return isinstance(message, (Fetch, ListOffsets)) or (hasattr(message, "kind") and not heartbeat)
