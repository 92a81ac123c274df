"""Long work in slices, with the event loop's other work in between.

    slices = Slices(clock, scheduler)
    slices.add(steps)            # an iterator: each `next` does a little

Work is done in the order in which it was added. A slice begins at once, unless earlier work is
pending, and ends after SLICE_MS; the next slice begins in the next pass of the loop, after
heartbeats, replication and clients had their turn. So a small piece of work is finished when `add`
returns, and work on ten thousand partitions delays others by SLICE_MS and the longest step at most.

The clock port measures the slice: in a simulation, where time does not pass during an event, all
work is done at once.
"""

import logging
from collections import deque
from collections.abc import Iterator

from odradek_broker.runtime import collector
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Scheduler

logger = logging.getLogger(__name__)

# A tenth of the time that a client may wait for the loop (100 ms), as several may have work.
SLICE_MS = 10.0


class Slices:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._queue: deque[Iterator[object]] = deque()
        self._running = False
        self._closed = False
        # Whether the current work has taken longer than one slice.
        self.continued = False

    @property
    def idle(self) -> bool:
        """No work is left."""
        return not self._queue

    def add(self, steps: Iterator[object]) -> None:
        if self._closed:
            return
        self._queue.append(steps)
        if len(self._queue) == 1 and not self._running:
            self._run()

    def close(self) -> None:
        """Drops the remaining work."""
        self._closed = True
        self._queue.clear()

    def _continue(self) -> None:
        self.continued = True
        collector.growing()
        self._run()

    def _run(self) -> None:
        queue, clock = self._queue, self._clock
        until_ms = clock.monotonic_ms() + SLICE_MS
        self._running = True
        try:
            while queue:
                if not self._take(queue[0], until_ms):
                    self._scheduler.call_later(0.0, self._continue)
                    return
                if queue:  # else it was closed by a step
                    queue.popleft()
                self.continued = False
        finally:
            self._running = False

    def _take(self, steps: Iterator[object], until_ms: float) -> bool:
        """True if all steps are done, False if the slice is over before."""
        try:
            for _ in steps:
                if self._clock.monotonic_ms() >= until_ms:
                    return self._closed
        except Exception:
            # Later work must not suffer from it.
            logger.exception("work in slices failed; this is a bug in Odradek")
        return True
