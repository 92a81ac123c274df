"""Logs one line per reason and period, with the number of lines that it left out.

    limited = RateLimitedLog(logger)
    limited.warning("refused", now_ms, "refused a connection from %s: too many", host)

The first line of a key is logged at once. Lines of the same key within the next minute are only
counted; the next one after that ends with "(and 4711 more like it in the last 60 s)". There are few
keys and they are fixed: a reason, not an address.
"""

import logging
from typing import Final

PERIOD_MS: Final = 60_000


class RateLimitedLog:
    def __init__(self, logger: logging.Logger, period_ms: int = PERIOD_MS) -> None:
        self._logger = logger
        self._period_ms = period_ms
        self._logged_ms: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def info(self, key: str, now_ms: float, message: str, *args: object) -> None:
        self._log(logging.INFO, key, now_ms, message, args)

    def warning(self, key: str, now_ms: float, message: str, *args: object) -> None:
        self._log(logging.WARNING, key, now_ms, message, args)

    def error(self, key: str, now_ms: float, message: str, *args: object) -> None:
        self._log(logging.ERROR, key, now_ms, message, args)

    def _log(
        self, level: int, key: str, now_ms: float, message: str, args: tuple[object, ...]
    ) -> None:
        last_ms = self._logged_ms.get(key)
        if last_ms is not None and now_ms - last_ms < self._period_ms:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        self._logged_ms[key] = now_ms
        left_out = self._left_out.pop(key, 0)
        if left_out:
            assert last_ms is not None
            message += " (and %d more like it in the last %d s)"
            args = (*args, left_out, round((now_ms - last_ms) / 1000))
        self._logger.log(level, message, *args)
