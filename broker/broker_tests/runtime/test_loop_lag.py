"""The lag of the event loop, compared with the session that it endangers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker_tests.manual_clock import ManualClock
from odradek_broker.runtime.loop_lag import WINDOW, LoopLag
from odradek_broker.runtime.metrics import Metrics

SESSION_MS = 2_500


class LateScheduler:
    """Calls the one timer as late as the test asks."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._callback: Callable[..., Any] | None = None

    def call_soon(self, callback: Callable[..., Any], *args: object) -> LateScheduler:
        raise AssertionError("not used")

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: object
    ) -> LateScheduler:
        self._delay_ms = int(delay * 1000)
        self._callback = callback
        return self

    def cancel(self) -> None:
        self._callback = None

    def pass_time(self, late_ms: int) -> None:
        assert self._callback is not None
        self._clock.advance(self._delay_ms + late_ms)
        self._callback()


def measure(*lags_ms: int) -> Metrics:
    """One window with these lags."""
    clock, metrics = ManualClock(), Metrics()
    scheduler = LateScheduler(clock)
    lag = LoopLag(scheduler, clock, metrics, SESSION_MS)
    lag.start()
    for late_ms in [*lags_ms, *[1] * (WINDOW - len(lags_ms))]:
        scheduler.pass_time(late_ms)
    return metrics


@pytest.mark.parametrize(
    ("lags_ms", "late"),
    [
        ((), False),
        ((400,), False),  # one in a thousand: p99.9 is still 1 ms
        ((250, 250, 250), False),  # exactly a tenth
        ((260, 300), True),
    ],
)
def test_a_session_shorter_than_ten_times_the_lag_is_logged(
    lags_ms: tuple[int, ...], late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        metrics = measure(*lags_ms)
    assert metrics.loop_lag_windows_late == late
    said = [record for record in caplog.messages if "broker.session.timeout.ms (2500)" in record]
    assert len(said) == late


def test_a_long_pause_of_the_loop_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        measure(501)
    assert caplog.messages == ["the event loop was blocked for 501 ms"]
