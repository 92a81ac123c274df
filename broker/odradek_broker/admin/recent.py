"""Numbers of the last minutes, from counters that only grow: request times, and the loop's CPU.

A quantile of all requests since the start says nothing about now, so a scrape compares the
histogram with a copy of it that is WINDOW_MS to 2 × WINDOW_MS old. Nothing is copied without
scrapes: the first scrape after a pause covers the pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from odradek_broker.runtime.metrics import Histogram

T = TypeVar("T")

# Two of them are the five minutes that the quantiles of Apache Kafka mostly describe.
WINDOW_MS = 150_000.0


class Recent(Generic[T]):
    """Remembers an older value of something: `since(now_ms, value)` returns the one to compare."""

    __slots__ = ("_newer", "_newer_ms", "_older")

    def __init__(self, start: T, now_ms: float) -> None:
        self._older = self._newer = start
        self._newer_ms = now_ms

    def since(self, now_ms: float, value: Callable[[], T]) -> T:
        if now_ms - self._newer_ms >= WINDOW_MS:
            self._older, self._newer, self._newer_ms = self._newer, value(), now_ms
        return self._older


class RecentTimes:
    """The histograms of request times, each since its older copy."""

    def __init__(self) -> None:
        self._copies: dict[int, Recent[Histogram]] = {}  # by the identity of the histogram

    def of(self, histogram: Histogram, now_ms: float) -> Histogram:
        recent = self._copies.get(id(histogram))
        if recent is None:
            recent = self._copies[id(histogram)] = Recent(Histogram(), now_ms)
        return histogram.minus(recent.since(now_ms, histogram.copy))


class IdleShare:
    """The share of time in which the thread that created this object did not use the CPU."""

    def __init__(self) -> None:
        # Linux has the CPU time of every thread; elsewhere that of the process is the best guess.
        identity = threading.get_ident()
        self._clock = (
            time.pthread_getcpuclockid(identity) if hasattr(time, "pthread_getcpuclockid") else None
        )
        self._recent = Recent(self._now(), time.monotonic() * 1000)

    def _now(self) -> tuple[float, float]:
        used = time.process_time() if self._clock is None else time.clock_gettime(self._clock)
        return time.monotonic(), used

    def share(self) -> float:
        wall, used = self._now()
        before_wall, before_used = self._recent.since(wall * 1000, self._now)
        elapsed = wall - before_wall
        return max(0.0, min(1.0, 1.0 - (used - before_used) / elapsed)) if elapsed > 0 else 1.0
