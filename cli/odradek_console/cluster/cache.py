"""Answers that are kept for some seconds, each asked for by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")

ENTRIES_MAX = 500  # settings of topics and the like: one per thing that was looked at


class Cache:
    """Safe for threads. `now` is time.monotonic, or a test's clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._known: dict[object, tuple[float, Any]] = {}

    def get(self, key: object, max_age_s: float, ask: Callable[[], Answer]) -> Answer:
        """The answer that is known if it is young enough; otherwise `ask()`, whose errors pass."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            known = self._known.get(key)
            if known is not None and self._now() - known[0] <= max_age_s:
                return cast(Answer, known[1])
            answer = ask()
            with self._lock:
                if len(self._known) >= ENTRIES_MAX:
                    self._known.clear()
                self._known[key] = (self._now(), answer)
            return answer

    def forget(self) -> None:
        """After a change; an answer that is being asked for meanwhile is kept."""
        with self._lock:
            self._known.clear()
            self._locks = {key: lock for key, lock in self._locks.items() if lock.locked()}
