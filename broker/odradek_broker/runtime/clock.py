"""Time as a port: wall time for what goes into records, monotonic time for timeouts."""

from collections.abc import Callable
from time import monotonic, perf_counter_ns, time_ns
from typing import Final, Protocol

# For metrics of the hot path. Final, so that compiled code does not look the name up.
now_ns: Final[Callable[[], int]] = perf_counter_ns


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970. May jump; never used for a timeout."""

    def monotonic_ms(self) -> float:
        """Never jumps; only differences have a meaning."""


class SystemClock:
    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return monotonic() * 1000.0


class ManualClock:
    """For tests and the simulator: time moves only by `advance`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic_ms += ms
