"""Clock, scheduler and threads of a simulated broker."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broker_tests.sim.world import World
from odradek_broker.log.errors import LogDirError

if TYPE_CHECKING:
    from broker_tests.sim.cluster_node import ClusterNode

FSYNC_MS_MAX = 15
WALL_CLOCK_JUMP_MS = 86_400_000


class SimClock:
    """Monotonic time that starts anywhere, wall time that jumps with every reading."""

    def __init__(self, node: ClusterNode, rng: Random) -> None:
        self._node = node
        self._rng = rng

    def monotonic_ms(self) -> float:
        return self._node.world.now_ms + self._node.clock_skew_ms

    def now_ms(self) -> int:
        return self._rng.randint(0, WALL_CLOCK_JUMP_MS)


class _Handle:
    def cancel(self) -> None:
        """Nothing that is cancelled in production is scheduled in the simulation."""


class SimScheduler:
    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    def call_soon(self, callback: Callable[..., Any], *args: object) -> _Handle:
        self._world.after_on(self._node_id, 0, callback, *args)
        return _Handle()

    def call_later(self, delay: float, callback: Callable[..., Any], *args: object) -> _Handle:
        self._world.after_on(self._node_id, max(1, int(delay * 1000)), callback, *args)
        return _Handle()


class SimThreads:
    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id
        self._rng = world.rng(f"fsync-{node_id}")

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        def both() -> None:
            try:
                job()
            except LogDirError as error:
                done(error)
            else:
                done(None)

        self._world.after_on(self._node_id, self._rng.randint(0, FSYNC_MS_MAX), both)
