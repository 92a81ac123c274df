"""Long work in slices, with the event loop's other work in between.

    slices = Slices(clock, scheduler)
    slices.add(steps)            # an iterator: each `next` does a little

What was added is done in the order in which it was added. A slice begins at once, unless earlier
work is waiting, and ends after SLICE_MS; the next one begins in the next pass of the loop, after
heartbeats, replication and clients had their turn. So little work is done when `add` returns, and
ten thousand partitions cost nobody more than SLICE_MS and the longest step.

How long a slice has lasted is asked of the clock port: in a simulation, where time stands still
during an event, everything is done at once.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator

from odradek_broker.runtime import collector
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Scheduler

logger = logging.getLogger(__name__)

# A tenth of what a client may wait for the loop (100 ms): several may have work at the same time.
SLICE_MS = 10.0


class Slices:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._queue: deque[Iterator[object]] = deque()
        self._running = False
        self._closed = False
        self._idle_callbacks: list[Callable[[], None]] = []
        # Whether the steps that are being taken have lasted longer than one slice.
        self.continued = False

    @property
    def idle(self) -> bool:
        """Nothing is left to do."""
        return not self._queue

    def add(self, steps: Iterator[object]) -> None:
        if self._closed:
            return
        self._queue.append(steps)
        if len(self._queue) == 1 and not self._running:
            self._run()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call it once, when nothing is left to do: at once, if that is so now."""
        if self.idle:
            callback()
        else:
            self._idle_callbacks.append(callback)

    def close(self) -> None:
        """Nothing more is done; whoever waits for the end of it is called."""
        self._closed = True
        self._queue.clear()
        self._tell_idle()

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
        self._tell_idle()

    def _take(self, steps: Iterator[object], until_ms: float) -> bool:
        """Whether these steps are all done; False if the slice is over."""
        try:
            for _ in steps:
                if self._clock.monotonic_ms() >= until_ms:
                    return self._closed
        except Exception:
            # What comes after it must not suffer from it.
            logger.exception("a piece of long work failed; this is a bug in Odradek")
        return True

    def _tell_idle(self) -> None:
        callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()
