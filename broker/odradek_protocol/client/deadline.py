"""Time limits that are passed down from a call to its attempts, and pauses between attempts."""

from __future__ import annotations

import time

FIRST_PAUSE_S = 0.05  # an election takes about this long at best
PAUSE_MAX_S = 1.0


class Deadline:
    """A point in time; everything that a call does has to end before it."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left_s(self) -> float:
        return max(self._at - time.monotonic(), 0.0)

    def within(self, seconds: float) -> Deadline:
        """This deadline, or the one in `seconds` if that is earlier."""
        return Deadline(min(seconds, self.left_s()))


class BackOff:
    """Pauses of 50, 100, 200 … 1000 ms.

    Without jitter: the clients of this package are operators and people, not fleets.
    """

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def pause(self, deadline: Deadline) -> bool:
        """Waits; False, at once, if the deadline comes before the end of the pause."""
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, PAUSE_MAX_S)
        if deadline.left_s() <= pause_s:
            return False
        time.sleep(pause_s)
        return True
