"""Waiting for a condition that can only be polled.

wait_until(lambda: topic in admin.list_topics().topics, "the topic exists")

A deadline exists so that a broken server fails the test instead of blocking the run; it is far
longer than a healthy server needs, so that a busy machine does not fail it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 30.0  # for anything that a healthy broker does in milliseconds
POLL_S = 0.01


def wait_until(
    condition: Callable[[], bool],
    what: str = "",
    deadline_s: float = DEADLINE_S,
    *,
    poll_s: float = POLL_S,
) -> float:
    """Polls until the condition holds; the seconds that it took. AssertionError at the deadline."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > deadline_s:
            raise AssertionError(f"{what or 'the condition'}: not within {deadline_s:.0f} s")
        time.sleep(poll_s)
    return time.monotonic() - began
