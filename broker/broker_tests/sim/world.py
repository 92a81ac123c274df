"""A world: simulated time, hosts that come and go, and the trace of all that happened.

A host runs one `Node` (the production state machine plus the code that drives it). The world
knows three things about a host: is it up, is it paused, and which life it is in. Everything
scheduled for a host dies with the life in which it was scheduled; while the host is paused it
waits, and is delivered in order on resume, as with SIGSTOP.

A reply travels on the connection of its request: it reaches only the life that asked. When a
process dies, its connections break: clients of it get `failed`, servers of it get `disconnected`.
Both come late or never where the network is bad, and may come (`Weather.reset`) although both
processes are alive.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from broker_tests.sim.network import Network, Weather

# An endless loop between nodes must end the run, not the test session.
EVENTS_MAX = 2_000_000
RESTART_MS_MAX = 10  # until a process that died in the middle of its work is restarted


class SimulationError(AssertionError):
    """An invariant does not hold. The message says which, where and when."""


class HostCrashedError(Exception):
    """Raised by a node in the middle of its work: the process dies right there."""


class Address(NamedTuple):
    """A life of a host; requests go to a host, replies to the life that asked."""

    node_id: int
    life: int


class Node(Protocol):
    """The program on a host."""

    def start(self) -> None:
        """The process starts, from what is on the disk."""

    def handle(self, source: Address, message: Any) -> None:
        """A message has arrived."""

    def failed(self, target: int, message: Any, refused: bool) -> None:
        """No answer to this request will come. (A cut link is silent.)

        `refused`: no process listens there. Else the connection broke while it was under way.
        """

    def disconnected(self, source: int) -> None:
        """A connection that was opened from there broke."""

    def crash(self, rng: Random) -> None:
        """The process is gone, and with it what was not durable; `rng` says how much."""

    def wipe(self, rng: Random) -> None:
        """The disk was replaced by an empty one (the process is down)."""


@dataclass
class Host:
    node_id: int
    node: Node
    up: bool = False
    paused: bool = False
    life: int = 0
    down_since_ms: int = 0
    # Messages that came while paused, in order.
    deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = field(default_factory=list)


class World:
    def __init__(self, seed: int | str, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.now_ms = 0
        self.events = 0
        self.hosts: dict[int, Host] = {}
        self.network = Network(self.rng("network"), Weather())
        self.trace: list[str] | None = [] if keep_trace else None
        self._hash = hashlib.blake2b(digest_size=12)
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0
        self._crash_rng = self.rng("crash")
        self._reset_rng = self.rng("reset")

    def rng(self, purpose: str) -> Random:
        """A random stream per purpose: a further draw from one does not change the others."""
        return Random(f"{self.seed}/{purpose}")

    # ------------------------------------------------------------ time

    def at(self, at_ms: int, action: Callable[..., object], *args: object) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (at_ms, self._sequence, action, args))

    def after(self, delay_ms: int, action: Callable[..., object], *args: object) -> None:
        self.at(self.now_ms + delay_ms, action, *args)

    def after_on(
        self, node_id: int, delay_ms: int, action: Callable[..., object], *args: object
    ) -> None:
        """On a host: dies with its life, waits while it is paused."""
        life = self.hosts[node_id].life
        self.at(self.now_ms + delay_ms, self._on_host, node_id, life, action, args)

    def run_until(self, end_ms: int, stop: Callable[[], bool] | None = None) -> None:
        """Lets time pass until `end_ms`, or until `stop()` after some event."""
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            at_ms, _, action, args = heapq.heappop(queue)
            self.now_ms = max(self.now_ms, at_ms)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise SimulationError(f"more than {EVENTS_MAX} events: {self.now_ms} ms reached")
            action(*args)
            if stop is not None and stop():
                return
        self.now_ms = max(self.now_ms, end_ms)

    def _on_host(
        self, node_id: int, life: int, action: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        host = self.hosts[node_id]
        if host.life != life or not host.up:
            return
        if host.paused:
            host.deferred.append((action, args))
            return
        try:
            action(*args)
        except HostCrashedError:
            self.crash(node_id)
            self.after(self._crash_rng.randint(1, RESTART_MS_MAX), self.start, node_id)

    # ------------------------------------------------------------ hosts

    def add(self, node_id: int, node: Node) -> None:
        self.hosts[node_id] = Host(node_id, node)

    def start(self, node_id: int) -> None:
        host = self.hosts[node_id]
        if not host.up:
            host.up = True
            host.life += 1
            self.record(f"start {node_id}.{host.life}")
            self._on_host(node_id, host.life, host.node.start, ())

    def crash(self, node_id: int) -> None:
        host = self.hosts[node_id]
        if host.up:
            host.up = host.paused = False
            host.down_since_ms = self.now_ms
            host.deferred.clear()
            self.record(f"crash {node_id}")
            host.node.crash(self._crash_rng)
            for other in self.hosts:
                if other != node_id:
                    self._hang_up(node_id, other)

    def wipe(self, node_id: int) -> None:
        """Crash, and come back later with an empty disk."""
        self.crash(node_id)
        self.record(f"wipe {node_id}")
        self.hosts[node_id].node.wipe(self._crash_rng)

    def pause(self, node_id: int) -> None:
        host = self.hosts[node_id]
        if host.up:
            host.paused = True
            self.record(f"pause {node_id}")

    def resume(self, node_id: int) -> None:
        host = self.hosts[node_id]
        if not host.paused:
            return
        host.paused = False
        self.record(f"resume {node_id}")
        deferred, host.deferred = host.deferred, []
        life = host.life
        for action, args in deferred:
            self._on_host(node_id, life, action, args)

    # ------------------------------------------------------------ messages

    def send(
        self, source: int, target: int, message: object, delays_ms: list[int] | None = None
    ) -> None:
        """A request: whichever life of the target is up when it arrives gets it.

        `delays_ms` of its copies; by default those of the network.
        """
        sender = Address(source, self.hosts[source].life)
        if self.network.resets():
            refused = self._reset_rng.random() < 0.5
            self.after(1, self._fail, sender, target, message, refused)
            self._hang_up(source, target)
            return
        if delays_ms is None:
            delays_ms = self.network.delays_ms(source, target)
        for delay_ms in delays_ms:
            args = (sender, target, None, message, self.now_ms)
            self.after(delay_ms, self._deliver, *args)

    def reply(self, source: int, target: Address, message: object) -> None:
        for delay_ms in self.network.delays_ms(source, target.node_id):
            sender = Address(source, self.hosts[source].life)
            args = (sender, target.node_id, target.life, message, self.now_ms)
            self.after(delay_ms, self._deliver, *args)

    def _deliver(
        self, sender: Address, target: int, life: int | None, message: object, sent_ms: int
    ) -> None:
        host = self.hosts[target]
        if host.up and life in (None, host.life):
            self._on_host(target, host.life, host.node.handle, (sender, message))
        elif not host.up and life is None and not self.network.is_cut(target, sender.node_id):
            self._fail(sender, target, message, sent_ms >= host.down_since_ms)

    def _fail(self, sender: Address, target: int, message: object, refused: bool) -> None:
        node = self.hosts[sender.node_id].node
        self._on_host(sender.node_id, sender.life, node.failed, (target, message, refused))

    def _hang_up(self, source: int, target: int) -> None:
        """The end of a connection travels like a message."""
        host = self.hosts[target]
        for delay_ms in self.network.delays_ms(source, target):
            args = (target, host.life, host.node.disconnected, (source,))
            self.after(delay_ms, self._on_host, *args)

    # ------------------------------------------------------------ trace

    def record(self, line: str) -> None:
        line = f"{self.now_ms} {line}"
        self._hash.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def trace_hash(self) -> str:
        return self._hash.hexdigest()
