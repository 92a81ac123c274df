"""Measures the lag of the event loop, which shows whether it is overloaded.

A timer is due every 100 ms; the lag is how much later it runs. Everything that blocks the loop (a
long handler, a disk access outside of a thread) increases it.

A broker whose loop is blocked sends no heartbeats. So `broker.session.timeout.ms` should be at
least ten times the 99.9th percentile of the lag; if it is not, that is logged (once per WINDOW
measurements, 100 s) and counted in `/metrics`.
"""

import logging

from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.tasks import Cancellable, Scheduler

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.1
# Logged from this lag on: clients notice half a second.
WARN_FROM_US = 500_000
# A session should be at least this many times as long as the 99.9th percentile of the lag.
SESSION_TO_LAG_MIN = 10
WINDOW = 1000  # measurements, of which one may be later


class LoopLag:
    def __init__(
        self, scheduler: Scheduler, clock: Clock, metrics: Metrics, session_timeout_ms: int
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._metrics = metrics
        self._session_timeout_ms = session_timeout_ms
        self._timer: Cancellable | None = None
        self._due_ms = 0.0
        self._measured = 0  # in this window
        self._late: list[int] = []  # lags in this window that are too long for the session

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
        self._compare_with_session(lag_us)
        self.start()

    def _compare_with_session(self, lag_us: int) -> None:
        if lag_us * SESSION_TO_LAG_MIN > self._session_timeout_ms * 1000:
            self._late.append(lag_us)
        self._measured += 1
        if self._measured < WINDOW:
            return
        late, self._late, self._measured = self._late, [], 0
        if len(late) > WINDOW // 1000:
            self._metrics.loop_lag_windows_late += 1
            logger.warning(
                "the event loop was late by up to %d ms, and %d times in %d by more than a tenth "
                "of broker.session.timeout.ms (%d): the controller may fence this broker although "
                "it is alive; give it more CPU or a longer session timeout",
                max(late) // 1000,
                len(late),
                WINDOW,
                self._session_timeout_ms,
            )
