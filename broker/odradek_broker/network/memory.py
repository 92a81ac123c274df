"""How many bytes of requests the broker holds at once, over all connections.

A connection asks before it takes in a frame and gives back when the request was answered.
Over the budget, connections stop reading (TCP then slows the client down) until there is room.
Without this, 1,000 clients with a 100 MB request each would be the end of the process.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

# Used when queued.max.request.bytes is -1 (Kafka's default, no limit). A broker that is meant
# to live in tens of MB cannot afford "no limit"; this lets two largest requests (100 MB) pass.
DEFAULT_BUDGET_BYTES: Final = 256 * 1024 * 1024


class RequestMemory:
    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes if budget_bytes > 0 else DEFAULT_BUDGET_BYTES
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size: int) -> bool:
        """Reserves `size` bytes; False if they are not there, and who wants them has to `wait`.

        A single frame larger than the whole budget passes when nothing else is held.
        """
        if self.used_bytes and self.used_bytes + size > self.budget_bytes:
            return False
        self.used_bytes += size
        return True

    def wait(self, resume: Callable[[], None]) -> None:
        """`resume` is called when there is room."""
        self._waiting.append(resume)

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        assert self.used_bytes >= 0
        # Each one that is woken asks again, and queues up again if there is still no room.
        for _ in range(len(self._waiting)):
            if self.used_bytes >= self.budget_bytes:
                return
            self._waiting.popleft()()
