"""Requests that are partly received: how fast they arrive, and which are dropped for others.

The server calls `sweep` every half second.

- WINDOW_BYTES of a request, or its rest, must arrive in each `window_ms`
  (odradek.request.receive.timeout.ms). Single bytes now and then are not enough. The time in which
  it waits for memory does not count.
- When a connection has waited for memory for PATIENCE_MS, large requests of senders slower than
  SLOW_BYTES_PER_S are dropped, the slowest first, until enough memory is free. If no request got
  memory for STANDSTILL_MS, requests that wait themselves are dropped too, the youngest first; never
  the one whose turn it is.

To drop a request is to close its connection; the client reconnects and sends it again.
A memory shortage is logged when it begins and when it ends.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from odradek_broker.network.large_frame import LargeFrame
from odradek_broker.network.memory import RequestMemory, Waiter
from odradek_broker.runtime.metrics import Metrics

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 0.5
# About 1 KB/s with the default window of 30 s: slower than any link that a request of some MB
# could be sent over within a client's own time limit.
WINDOW_BYTES: Final = 32 * 1024
PATIENCE_MS: Final = 1_000
STANDSTILL_MS: Final = 3_000
SLOW_BYTES_PER_S: Final = 64 * 1024
# Rates this near to each other count as equal: then the largest request is dropped first.
SAME_RATE: Final = 8 * 1024
# Slow requests are dropped until memory use is down to this share, so that others need not wait.
RELIEVED_SHARE: Final = 0.75
# A shortage is over when no connection has waited for this long; otherwise one that comes and goes
# would log two lines each time.
OVER_MS: Final = 2_000
# The broker is not ready when no request got memory for this long.
STARVED_MS: Final = 5_000

# Called with the reason while no request has got memory for STARVED_MS; with None when one has.
OnStarved = Callable[[str | None], None]


def ignore_starved(_: str | None) -> None:
    """A callback for servers without /readyz: does nothing."""


class FrameSender(Protocol):
    """The interface of a connection that this module needs."""

    client_host: str

    @property
    def waiter(self) -> Waiter | None:
        """Its place in the queue for memory, if it waits for some."""

    @property
    def held_bytes(self) -> int:
        """Request memory of all its requests."""

    @property
    def client_id(self) -> str | None:
        """The client id of its current request, if it is known."""

    def close(self, reason: str) -> None: ...


class Receiving:
    def __init__(
        self,
        memory: RequestMemory,
        metrics: Metrics,
        window_ms: int,
        senders: Callable[[], Iterable[FrameSender]],
        on_starved: OnStarved,
    ) -> None:
        self._memory = memory
        self._metrics = metrics
        self._window_ms = window_ms
        self._senders = senders
        metrics.request_memory_limit = memory.limit_bytes
        self._frames: dict[LargeFrame, FrameSender] = {}
        self._swept_ms = 0.0
        self._swept_before_ms = 0.0
        self._grants_seen = 0
        self._stands_since_ms: float | None = None  # since then a request waits and none got memory
        self._waited_ms = 0.0  # when a request last waited
        self._episode_ms: float | None = None  # when the current shortage was logged
        self._episode_waits = 0
        self._episode_drops = 0
        self._on_starved = on_starved
        self._starved = False

    def add(self, frame: LargeFrame, sender: FrameSender) -> None:
        self._frames[frame] = sender

    def discard(self, frame: LargeFrame) -> None:
        self._frames.pop(frame, None)

    def sweep(self, now_ms: float) -> None:
        since_ms = self._swept_before_ms
        self._swept_before_ms, self._swept_ms = self._swept_ms, now_ms
        late = [
            (frame, sender)
            for frame, sender in self._frames.items()
            if not self._in_time(frame, sender, now_ms, (now_ms - since_ms) / 1000)
        ]
        for frame, sender in late:
            self._metrics.requests_dropped_slow += 1
            sender.close(
                f"a request arrived too slowly: {frame.filled - frame.window_filled} bytes in "
                f"{(now_ms - frame.window_ms) / 1000:.0f} s, {frame.filled} of {frame.size} so far "
                "(odradek.request.receive.timeout.ms)"
            )
        self._watch_shortage(now_ms)
        self._metrics.request_memory_used = self._memory.used_bytes
        self._metrics.request_memory_waiting = self._memory.waiting
        self._metrics.request_memory_waits = self._memory.waits

    def _in_time(
        self, frame: LargeFrame, sender: FrameSender, now_ms: float, seconds: float
    ) -> bool:
        """`seconds` have passed since the sweep before the last one."""
        if sender.waiter is not None:  # the broker does not read it at the moment
            frame.window_ms, frame.window_filled = now_ms, frame.filled
            frame.seen, frame.seen_before, frame.rate = frame.filled, -1, -1.0
            return True
        if frame.seen_before >= 0:
            frame.rate = (frame.filled - frame.seen_before) / seconds
        frame.seen, frame.seen_before = frame.filled, frame.seen
        if now_ms - frame.window_ms < self._window_ms:
            return True
        if frame.filled - frame.window_filled < WINDOW_BYTES:
            return False
        frame.window_ms, frame.window_filled = now_ms, frame.filled
        return True

    # --- shortage ------------------------------------------------------------------------

    def _watch_shortage(self, now_ms: float) -> None:
        memory = self._memory
        head = memory.head
        if head is None:
            self._stands_since_ms = None
            if now_ms - self._waited_ms >= OVER_MS:
                self._end_episode(now_ms)
        elif memory.grants != self._grants_seen or self._stands_since_ms is None:
            self._stands_since_ms = now_ms
        self._grants_seen = memory.grants
        if head is not None:
            self._waited_ms = now_ms
        if head is not None and now_ms - head.since_ms >= PATIENCE_MS:
            self._begin_episode(now_ms)
            assert self._stands_since_ms is not None
            stands = now_ms - self._stands_since_ms >= STANDSTILL_MS
            self._relieve(head, stands=stands)
        self._report_starved(now_ms)

    def _relieve(self, head: Waiter, *, stands: bool) -> None:
        memory = self._memory
        slow, waiting = [], []
        for frame, sender in self._frames.items():
            if sender.waiter is not None:
                if sender.waiter is not head:
                    waiting.append((frame, sender))
            elif 0 <= frame.rate < SLOW_BYTES_PER_S:
                slow.append((frame, sender))
        slow.sort(key=lambda found: (found[0].rate // SAME_RATE, -found[0].capacity))
        relieved = int(memory.limit_bytes * RELIEVED_SHARE)
        for frame, sender in slow:
            if memory.used_bytes <= relieved and memory.can_serve(head):
                return
            self._drop(frame, sender)
        if not stands:
            return
        # The rest waits itself, or is being handled. Requests that wait are dropped only if that
        # frees enough memory for the first in the queue.
        waiting.sort(key=lambda found: found[0].started_ms, reverse=True)
        if not memory.fits(head, freed=sum(frame.capacity for frame, _ in waiting)):
            return
        for frame, sender in waiting:
            if memory.can_serve(head):
                return
            self._drop(frame, sender)

    def _drop(self, frame: LargeFrame, sender: FrameSender) -> None:
        self._metrics.requests_dropped_for_memory += 1
        self._episode_drops += 1
        sender.close(
            "dropped, because request memory is used up and others wait for it: "
            f"{frame.filled} of {frame.size} bytes of a request had arrived"
        )

    # --- reporting -----------------------------------------------------------------------

    def _begin_episode(self, now_ms: float) -> None:
        if self._episode_ms is not None:
            return
        memory = self._memory
        self._episode_ms = now_ms
        self._episode_waits = memory.waits
        self._episode_drops = 0
        held: Counter[tuple[str, str]] = Counter()
        for sender in self._senders():
            if sender.held_bytes:
                held[sender.client_host, sender.client_id or "unknown"] += sender.held_bytes
        worst = held.most_common(1)
        (host, client_id), most = worst[0] if worst else (("nobody", "none"), 0)
        logger.warning(
            "request memory is used up: %d of %d bytes, %d connections wait; %s (client id %s) "
            "holds the most, %d bytes (queued.max.request.bytes)",
            memory.used_bytes,
            memory.limit_bytes,
            memory.waiting,
            host,
            client_id,
            most,
        )

    def _end_episode(self, now_ms: float) -> None:
        if self._episode_ms is None:
            return
        logger.info(
            "request memory is free again after %.1f s: %d bytes used, %d requests had to wait, "
            "%d were dropped",
            (now_ms - self._episode_ms) / 1000,
            self._memory.used_bytes,
            self._memory.waits - self._episode_waits,
            self._episode_drops,
        )
        self._episode_ms = None

    def _report_starved(self, now_ms: float) -> None:
        stands_ms = 0.0 if self._stands_since_ms is None else now_ms - self._stands_since_ms
        starved = stands_ms >= STARVED_MS
        if starved:
            self._on_starved(
                f"request memory is used up, {self._memory.waiting} connections have waited for "
                f"{stands_ms / 1000:.0f} s (the log names the client that holds the most)"
            )
        elif self._starved:
            self._on_starved(None)
        self._starved = starved
