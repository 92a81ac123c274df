"""Time as a port: wall time for what goes into records, monotonic time for timeouts."""

from collections.abc import Callable
from time import monotonic, perf_counter_ns, process_time, time_ns
from typing import Final, Protocol

# For metrics of the hot path. Final, so that compiled code does not look the name up.
now_ns: Final[Callable[[], int]] = perf_counter_ns
# CPU time of this process, all threads. Only for metrics: decisions must not depend on it.
cpu_seconds: Final[Callable[[], float]] = process_time


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
