"""Directed faults: situations that occur in one of ten thousand random schedules.

A part of the seeds uses these instead of the mixed schedule (`draw_profile`).

    ambush     One follower is kept from fetching until the leader has taken it out of the ISR,
               then it may fetch again. It catches up, and when the leader proposes to add it to
               the ISR, one of these happens:

               death    its disk is replaced and it is back at once, as another incarnation,
                        while the proposal is still on its way
               late     it is kept from fetching again, and the proposal arrives after its sender
                        has abandoned it
               twice    it is added, kept from fetching until it is out of the ISR once more,
                        and then a second copy of the first proposal arrives

    restless   An operator makes another replica the leader every 30–120 ms; now and then all
               replication is stopped (`stall`), while controller and clients work. So logs
               diverge in epochs that other replicas do not have.

Fetches use connections of their own, so a follower can be cut off from its leader while its
heartbeats reach the controller: `stalled` concerns fetches only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from broker_tests.sim.faults import Fault, Kind, draw_schedule
from broker_tests.sim.world import World
from odradek_broker.metadata.image import PartitionRegistration

# Long enough for the leader to notice (replica.lag.time.max.ms) and the controller to agree.
OUT_OF_ISR_MS = 650
TRAP_MS = 1_500
AMBUSHES = (Kind.AMBUSH_DEATH, Kind.AMBUSH_LATE, Kind.AMBUSH_TWICE)


def draw_profile(
    rng: Random, node_ids: Sequence[int], end_ms: int
) -> tuple[tuple[Fault, ...], bool]:
    """The faults of a seed, and whether its operator is restless."""
    profile = rng.random()
    if profile < 0.7:
        return draw_schedule(rng, node_ids, end_ms), False
    if profile < 0.85:
        return _draw_ambushes(rng, end_ms), False
    return _draw_stalls(rng, node_ids, end_ms), True


def _draw_ambushes(rng: Random, end_ms: int) -> tuple[Fault, ...]:
    faults = []
    at_ms = rng.randint(50, 600)
    while at_ms < end_ms - TRAP_MS:
        faults.append(Fault(rng.choice(AMBUSHES), at_ms, TRAP_MS, ()))
        at_ms += rng.randint(1_800, 2_600)
    return tuple(faults)


def _draw_stalls(rng: Random, node_ids: Sequence[int], end_ms: int) -> tuple[Fault, ...]:
    faults = []
    at_ms = rng.randint(50, 600)
    while at_ms < end_ms:
        duration_ms = rng.randint(80, 380)  # the ISR stays as it is
        faults.append(Fault(Kind.STALL, at_ms, duration_ms, tuple(node_ids)))
        if rng.random() < 0.3:
            node = rng.choice(node_ids)
            faults.append(Fault(Kind.CRASH, at_ms + duration_ms // 2, duration_ms, (node,)))
        at_ms += duration_ms + rng.randint(100, 900)
    return tuple(faults)


class Ambusher:
    """Starts these faults and carries them out. `may_lose`: whether that disk may be lost now."""

    def __init__(
        self,
        world: World,
        partitions: Callable[[], list[PartitionRegistration]],
        may_lose: Callable[[int], bool],
    ) -> None:
        self._world = world
        self._rng = world.rng("ambush")
        self._partitions = partitions
        self._may_lose = may_lose
        self.stalled: set[tuple[int, int]] = set()  # (follower, leader)
        self._traps: dict[int, Kind] = {}
        self._slow_until_ms: dict[int, int] = {}  # proposals of this leader are delayed

    def begin(self, fault: Fault) -> None:
        world = self._world
        world.record(f"fault {fault}")
        if fault.kind is Kind.STALL:
            for follower in fault.nodes:
                for leader in fault.nodes:
                    self._stall(follower, leader, fault.duration_ms)
            return
        candidates = [p for p in self._partitions() if p.leader >= 0 and len(p.isr) > 1]
        if not candidates:
            return
        partition = self._rng.choice(candidates)
        victim = self._rng.choice([r for r in partition.isr if r != partition.leader])
        self._stall(victim, partition.leader, OUT_OF_ISR_MS)
        world.after(OUT_OF_ISR_MS - 50, self._set_trap, victim, fault)

    def heal(self) -> None:
        self.stalled.clear()
        self._traps.clear()
        self._slow_until_ms.clear()

    def _set_trap(self, victim: int, fault: Fault) -> None:
        self._traps[victim] = fault.kind
        self._world.after(fault.duration_ms, self._traps.pop, victim, None)

    def _stall(self, follower: int, leader: int, duration_ms: int) -> None:
        self.stalled.add((follower, leader))
        self._world.after(duration_ms, self.stalled.discard, (follower, leader))

    def proposal_delays_ms(self, leader: int, joining: Sequence[int]) -> list[int] | None:
        """When the copies of a proposal sent now arrive; None: as any message."""
        world, rng = self._world, self._rng
        victim = next((replica for replica in joining if replica in self._traps), None)
        if victim is None:
            if world.now_ms < self._slow_until_ms.get(leader, 0):
                return [rng.randint(50, 300)]
            return None
        kind = self._traps.pop(victim)
        world.record(f"{kind.value}: {victim}, proposed by {leader}")
        if kind is Kind.AMBUSH_DEATH:
            if not self._may_lose(victim):
                return None
            # Not at once: this is in the middle of the leader's work.
            world.after(0, world.wipe, victim)
            world.after(rng.randint(1, 10), world.start, victim)
            delay_ms = rng.randint(100, 450)
            self._slow_until_ms[leader] = world.now_ms + delay_ms
            return [delay_ms]
        if kind is Kind.AMBUSH_LATE:
            self._stall(victim, leader, TRAP_MS)
            return [rng.randint(320, 900)]
        world.after(60, self._stall, victim, leader, TRAP_MS)
        return [rng.randint(1, 5), rng.randint(700, 1_500)]
