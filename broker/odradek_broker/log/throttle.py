"""Limits how many bytes per second all cleaner threads together read and write."""

import threading
from collections.abc import Callable


class Throttle:
    """Spreads bytes over time: each caller waits for the bytes that were taken before.

    Example, 1,000,000 bytes per second: two threads that take 500,000 bytes each at the same
    moment continue at once and after half a second.
    """

    def __init__(
        self,
        bytes_per_second: float,
        monotonic_ms: Callable[[], float],
        wait: Callable[[float], object],
    ) -> None:
        """`wait` takes seconds; the manager passes one that ends early when it stops."""
        self.bytes_per_second = bytes_per_second
        self._monotonic_ms = monotonic_ms
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at_ms = 0.0

    def take(self, number: int) -> None:
        with self._lock:
            now_ms = self._monotonic_ms()
            start_ms = max(now_ms, self._free_at_ms)
            self._free_at_ms = start_ms + 1000.0 * number / self.bytes_per_second
        if start_ms > now_ms:
            self._wait((start_ms - now_ms) / 1000.0)
