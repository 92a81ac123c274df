"""Measures how late the event loop runs: the one number that tells whether it is overloaded.

A timer asks to be called every 100 ms; how much later it is called is the lag. Anything that
blocks the loop (a long handler, a slow disk in the wrong place) shows up here.
"""

import logging

from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.tasks import Cancellable, Scheduler

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.1
# Worth a line in the log: clients notice half a second.
WARN_FROM_US = 500_000


class LoopLag:
    def __init__(self, scheduler: Scheduler, clock: Clock, metrics: Metrics) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._metrics = metrics
        self._timer: Cancellable | None = None
        self._due_ms = 0.0

    def start(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + INTERVAL_SECONDS * 1000
        self._timer = self._scheduler.call_later(INTERVAL_SECONDS, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        lag_us = max(0, int((self._clock.monotonic_ms() - self._due_ms) * 1000))
        self._metrics.loop_lag.observe_us(lag_us)
        self._metrics.loop_lag_now_us = lag_us
        if lag_us > WARN_FROM_US:
            logger.warning("the event loop was blocked for %d ms", lag_us // 1000)
        self.start()
