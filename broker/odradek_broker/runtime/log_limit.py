"""Lines in the log that would come again and again: at most one per key and interval.

    limit = LogLimit(clock, 10.0)
    limit.log(logger, logging.ERROR, "/data", "%s: %s", topic_partition, error)

The next line of the same key that is let through says how many were left out before it.
"""

import logging

from odradek_broker.runtime.clock import Clock

# Keys are directories, brokers or the like; should they ever be many, all start anew.
KEYS_MAX = 1000


class LogLimit:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._interval_ms = seconds * 1000
        self._seen: dict[str, tuple[float, int]] = {}  # key → next line at, lines left out

    def log(self, logger: logging.Logger, level: int, key: str, text: str, *args: object) -> None:
        now_ms = self._clock.monotonic_ms()
        next_ms, left_out = self._seen.get(key, (now_ms, 0))
        if now_ms < next_ms:
            self._seen[key] = next_ms, left_out + 1
            return
        if len(self._seen) >= KEYS_MAX:
            self._seen.clear()
        self._seen[key] = now_ms + self._interval_ms, 0
        suffix = f" ({left_out} more like this since the last line)" if left_out else ""
        logger.log(level, text + suffix, *args)
