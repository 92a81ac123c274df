"""Request memory with simulated senders, which do what connection.py does, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek_broker.network.large_frame import LargeFrame, first_capacity
from odradek_broker.network.memory import (
    BEGUN,
    NEW,
    OF_BROKER,
    SMALL_BYTES,
    RequestMemory,
    Waiter,
)
from odradek_broker.network.receiving import (
    OVER_MS,
    PATIENCE_MS,
    STANDSTILL_MS,
    STARVED_MS,
    WINDOW_BYTES,
    Receiving,
)
from odradek_broker.runtime.metrics import Metrics

KB = 1024
MB = 1024 * KB
FRAME_MAX = 4 * MB
BUDGET = 8 * MB
WINDOW_MS = 30_000
SWEEP_MS = 500


class World:
    def __init__(self, budget: int = BUDGET, frame_max: int = FRAME_MAX) -> None:
        self.soon: list[Callable[[], None]] = []
        self.memory = RequestMemory(budget, frame_max, self.soon.append)
        self.metrics = Metrics()
        self.senders: list[FakeSender] = []
        self.starved: list[str | None] = []
        self.receiving = Receiving(
            self.memory, self.metrics, WINDOW_MS, lambda: self.senders, self.starved.append
        )
        self.frame_max = frame_max
        self.now_ms = 0.0

    def sender(self, size: int, *, broker: bool = False) -> FakeSender:
        sender = FakeSender(self, size, broker)
        self.senders.append(sender)
        return sender

    def settle(self) -> None:
        while self.soon:
            self.soon.pop(0)()
        self.check()

    def check(self) -> None:
        memory = self.memory
        assert memory.used_bytes == sum(sender.held_bytes for sender in self.senders)
        frames = [sender.frame for sender in self.senders if sender.frame is not None]
        large = {frame for frame in frames if frame.size > SMALL_BYTES}
        assert memory.frames == large
        assert memory.frames_bytes == sum(frame.capacity for frame in large)
        small = SMALL_BYTES * len(self.senders)
        assert memory.used_bytes <= memory.budget_bytes + self.frame_max + small
        head = memory.head
        assert head is None or memory._next() is None

    def sweep(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_ms += SWEEP_MS
            self.receiving.sweep(self.now_ms)
            self.settle()


class FakeSender:
    """One request of `size` bytes; `arrive` brings bytes of it, `answer` ends it."""

    client_host = "10.0.0.1"
    client_id = "model"

    def __init__(self, world: World, size: int, broker: bool) -> None:
        self.world = world
        self.size = size
        self.broker = broker
        self.frame: LargeFrame | None = None
        self.waiter: Waiter | None = None
        self.arrived = 0  # taken out of the socket
        self.held_bytes = 0
        self.whole = False
        self.ended = ""

    def arrive(self, count: int) -> None:
        """`count` bytes more are in the socket, and it is readable."""
        assert not self.ended
        if self.whole or self.waiter is not None:
            return
        count = min(count, self.size - self.arrived)
        if self.frame is None:
            capacity = first_capacity(self.size, count)
            self.arrived = count
            if self._take(capacity):
                self._begin(capacity)
        elif count:
            while count and self.waiter is None:
                if self.frame.full:
                    more = self.frame.growth()
                    if self._take(more):
                        self._grow(more)
                    continue
                taken = min(count, self.frame.capacity - self.frame.filled)
                self.frame.filled += taken
                self.arrived += taken
                count -= taken
        self._maybe_whole()
        self.world.settle()

    def _take(self, charge: int) -> bool:
        memory = self.world.memory
        if memory.take_part(self.frame, self.size, charge):
            return True
        if self.size <= SMALL_BYTES:
            memory.take_anyway(charge)
            return True
        if self.broker and memory.take_part_for_broker(self.frame, self.size, charge):
            return True
        rank = OF_BROKER if self.broker else NEW if self.frame is None else BEGUN
        self.waiter = Waiter(rank, self.frame, self.size, charge, self.world.now_ms, self._granted)
        memory.wait(self.waiter)
        return False

    def _begin(self, capacity: int) -> None:
        self.held_bytes = capacity
        # A buffer of one byte stands for all of them.
        frame = self.frame = LargeFrame(self.size, b"", 1, self.world.now_ms)
        frame.capacity, frame.filled, frame.seen = capacity, self.arrived, self.arrived
        self.world.memory.begin(frame)
        self.world.receiving.add(frame, self)

    def _grow(self, more: int) -> None:
        assert self.frame is not None
        self.frame.capacity += more
        self.held_bytes += more
        self.world.memory.grown(self.frame, more)

    def _granted(self) -> None:
        waiter, self.waiter = self.waiter, None
        assert waiter is not None
        if self.frame is None:
            self._begin(waiter.charge)
        else:
            self._grow(waiter.charge)
        self._maybe_whole()

    def _maybe_whole(self) -> None:
        if self.frame is not None and self.frame.filled == self.size:
            self._end_frame()
            self.whole = True

    def _end_frame(self) -> None:
        assert self.frame is not None
        self.world.memory.end(self.frame)
        self.world.receiving.discard(self.frame)
        self.frame = None

    def answer(self) -> None:
        assert self.whole
        self.ended = "answered"
        self._release()

    def close(self, reason: str) -> None:
        self.ended = reason
        if self.waiter is not None:
            self.world.memory.forget(self.waiter)
            self.waiter = None
        if self.frame is not None:
            self._end_frame()
        self._release()

    def _release(self) -> None:
        held, self.held_bytes = self.held_bytes, 0
        self.world.memory.give_back(held)


SIZES = st.integers(10, FRAME_MAX) | st.sampled_from([100, 64 * KB, MB, FRAME_MAX])


@given(sizes=st.lists(SIZES, min_size=1, max_size=25), seed=st.integers(0, 2**32))
def test_senders_that_send_all_end_whatever_the_order_and_none_is_dropped(
    sizes: list[int], seed: int
) -> None:
    world, rng = World(), Random(seed)
    live = [world.sender(size, broker=rng.random() < 0.1) for size in sizes]
    for _ in range(200_000):
        ready = [s for s in live if not s.ended and (s.whole or s.waiter is None)]
        if not ready:
            break
        sender = rng.choice(ready)
        if sender.whole:
            sender.answer()
            world.settle()
        else:
            sender.arrive(rng.choice([100, 16 * KB, 256 * KB, MB]))
    assert [s.ended for s in live] == ["answered"] * len(live)
    assert world.memory.used_bytes == 0
    assert world.memory.waiting == 0


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=30),
    stalled=st.lists(st.tuples(SIZES, st.floats(0.0, 0.999)), max_size=60),
    seed=st.integers(0, 2**32),
)
# Half of the memory is free, and the banker's algorithm still does not grant it: the stalled
# senders have to be dropped in this case too (found here: the live one waited for a minute).
@example(sizes=[69_633], stalled=[(3_670_017, 0.25), (3_670_017, 0.25)], seed=0)
def test_senders_that_stop_half_way_hold_up_nobody_for_long(
    sizes: list[int], stalled: list[tuple[int, float]], seed: int
) -> None:
    world, rng = World(), Random(seed)
    for size, share in stalled:
        world.sender(size).arrive(int(size * share))
    live = [world.sender(size) for size in sizes]
    sweeps = 0
    while any(s.ended != "answered" for s in live):
        for sender in rng.sample(live, len(live)):
            for _ in range(20):  # MB/s: never the slow ones
                if not sender.ended and not sender.whole and sender.waiter is None:
                    sender.arrive(256 * KB)
            if sender.whole and not sender.ended:
                sender.answer()
                world.settle()
        world.sweep()
        sweeps += 1
        # A live sender may be dropped when nothing progresses; it connects and sends again.
        live = [world.sender(s.size) if s.ended not in ("", "answered") else s for s in live]
        assert sweeps * SWEEP_MS < 20_000, [s.waiter for s in live]
    for sender in world.senders:
        if not sender.ended:
            sender.close("the test ends")
    world.settle()
    assert world.memory.used_bytes == 0


def test_clients_cannot_take_what_is_kept_for_brokers() -> None:
    world = World()
    for _ in range(20):
        world.sender(MB).arrive(MB - 1)
    assert world.memory.waiting > 0
    broker = world.sender(512 * KB, broker=True)
    broker.arrive(512 * KB)
    assert broker.whole
    small = world.sender(10 * KB)
    small.arrive(10 * KB)
    assert small.whole


def test_a_silent_length_prefix_holds_little_and_ends_after_its_window() -> None:
    world = World()
    silent = world.sender(FRAME_MAX)
    silent.arrive(0)
    assert silent.held_bytes == SMALL_BYTES
    world.sweep(WINDOW_MS // SWEEP_MS - 1)
    assert not silent.ended
    world.sweep(2)
    assert silent.ended.startswith("a request arrived too slowly: 0 bytes in 30 s")
    assert world.metrics.requests_dropped_slow == 1


def test_progress_extends_the_deadline_and_a_byte_does_not() -> None:
    world = World()
    dripping, slow = world.sender(FRAME_MAX), world.sender(FRAME_MAX)
    dripping.arrive(100)
    slow.arrive(100)
    per_sweep = WINDOW_BYTES * SWEEP_MS // WINDOW_MS + 50
    for _ in range(3 * WINDOW_MS // SWEEP_MS):
        if not dripping.ended:
            dripping.arrive(1)
        slow.arrive(per_sweep)
        world.sweep()
    assert "too slowly" in dripping.ended
    assert not slow.ended


def test_the_time_spent_waiting_for_memory_does_not_count() -> None:
    world = World()
    workers = [world.sender(MB) for _ in range(7)]
    for worker in workers:
        worker.arrive(MB)
    assert all(worker.whole for worker in workers)
    waiting = world.sender(MB)
    waiting.arrive(100 * KB)
    assert waiting.waiter is not None
    world.sweep(2 * WINDOW_MS // SWEEP_MS)
    assert not waiting.ended
    workers[0].answer()
    world.settle()
    assert waiting.waiter is None


def test_the_slowest_sender_is_dropped_first_and_of_equals_the_largest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    fast, large, small, worker, waiting = (
        world.sender(size) for size in (3 * MB, 3 * MB, 2 * MB, MB, 2 * MB)
    )
    for sender in (fast, large, small, waiting):
        sender.arrive(256 * KB)
    worker.arrive(MB)
    assert worker.whole
    fast.arrive(800 * KB)
    large.arrive(800 * KB)
    assert [s.held_bytes // MB for s in world.senders] == [2, 2, 1, 1, 1]  # of 7 for clients
    world.sweep(2)
    waiting.arrive(800 * KB)
    assert waiting.waiter is not None
    for _ in range(int(PATIENCE_MS / SWEEP_MS) + 1):
        fast.arrive(100 * KB)
        world.sweep()
    assert "request memory is used up and others wait" in large.ended
    assert not small.ended
    assert not fast.ended
    assert not waiting.ended
    assert waiting.waiter is None
    world.sweep()
    logged = [record.getMessage() for record in caplog.records]
    assert "10.0.0.1 (client id model) holds the most" in logged[0]
    assert world.metrics.requests_dropped_for_memory == 1
    with caplog.at_level("INFO"):
        world.sweep(OVER_MS // SWEEP_MS + 1)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2
    assert "request memory is free again" in logged[1]


def test_a_broker_whose_memory_is_never_given_back_says_so() -> None:
    world = World()
    said = world.starved
    workers = [world.sender(MB) for _ in range(7)]
    for worker in workers:
        worker.arrive(MB)
    waiting = world.sender(MB)
    waiting.arrive(MB)
    assert waiting.waiter is not None
    world.sweep((STARVED_MS + STANDSTILL_MS) // SWEEP_MS)
    assert said[-1] is not None
    assert "1 connections have waited" in said[-1]
    workers[0].answer()
    world.settle()
    world.sweep()
    assert said[-1] is None
