"""The last hour in memory: a ring of points per series, so that charts need no Prometheus.

    history = History()
    history.add(now_ms, {"records": 120.0, ("lag", "billing"): 7.0})
    history.series("records")            # [(ms, 120.0)], oldest first

A series that got no value at a step has NaN there. Series that got none for an hour are dropped.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Hashable, Mapping

STEP_S = 10
POINTS = 360  # an hour
SERIES_MAX = 2_000  # groups and brokers; 360 points of 8 bytes each: 6 MB at most


class History:
    """Not safe for threads: one task adds, and readers get copies."""

    def __init__(self, points: int = POINTS) -> None:
        self._points = points
        self._times: deque[int] = deque(maxlen=points)
        self._series: dict[Hashable, array[float]] = {}
        self._idle: dict[Hashable, int] = {}  # steps since the last value
        self.left_out = 0  # series past SERIES_MAX at the last step

    def add(self, now_ms: int, values: Mapping[Hashable, float]) -> None:
        self.left_out = 0
        for key in values:
            if key not in self._series:
                if len(self._series) >= SERIES_MAX:
                    self.left_out += 1
                    continue
                self._series[key] = array("d", [math.nan] * len(self._times))
        self._times.append(now_ms)
        for key, ring in list(self._series.items()):
            ring.append(values.get(key, math.nan))
            if len(ring) > self._points:
                del ring[0]
            self._idle[key] = 0 if key in values else self._idle.get(key, 0) + 1
            if self._idle[key] >= self._points:
                del self._series[key], self._idle[key]

    def series(self, key: Hashable) -> list[tuple[int, float]]:
        ring = self._series.get(key)
        if ring is None:
            return []
        return [(at, value) for at, value in zip(self._times, ring, strict=True)
                if not math.isnan(value)]  # fmt: skip

    def last(self, key: Hashable) -> float | None:
        ring = self._series.get(key)
        return ring[-1] if ring and not math.isnan(ring[-1]) else None

    def names(self) -> list[Hashable]:
        return list(self._series)
