"""The purgatory: requests that wait for an event or a deadline, with no thread and no polling.

Called by `partition/service.py`. Nothing here knows asyncio: `Deadlines` gets the time as an
argument, `Purgatory` sets a timer through the scheduler port.

A `Ticket` is one waiting request. Two things can end its wait, whichever comes first:
`finish` is called because the awaited event happened, or `expire(now_ms)` finds that its
deadline has passed and calls `ticket.on_expired()`. It ends exactly once.

`Deadlines` keeps tickets in a heap. A ticket that finished early stays in the heap until its
deadline or until finished ones are the majority, then the heap is rebuilt: with 10,000 fetches
a second that wait up to 500 ms and finish after 1 ms, at most about 10,000 entries stay.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Cancellable, Scheduler

if TYPE_CHECKING:
    from odradek_broker.partition.partition import Partition

# Rebuilding a smaller heap than this saves nothing.
REBUILD_FROM: Final = 1024


class Ticket(ABC):
    """One waiting request. Subclasses define what happens when the deadline passes first."""

    __slots__ = ("deadline_ms", "finished")

    def __init__(self, deadline_ms: float) -> None:
        self.deadline_ms = deadline_ms
        self.finished = False

    @abstractmethod
    def on_expired(self) -> None:
        """The deadline passed before the event: answer the request with the data that exists."""


class Deadlines:
    """All tickets of one kind, ordered by deadline."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket]] = []
        self._sequence = count()
        # Invariant: number of entries in the heap whose ticket is not finished.
        self.waiting = 0

    def add(self, ticket: Ticket) -> None:
        heapq.heappush(self._heap, (ticket.deadline_ms, next(self._sequence), ticket))
        self.waiting += 1

    def finish(self, ticket: Ticket) -> bool:
        """Ends the wait; False if it had ended already."""
        if ticket.finished:
            return False
        ticket.finished = True
        self.waiting -= 1
        if len(self._heap) > REBUILD_FROM and self.waiting * 2 < len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].finished]
            heapq.heapify(self._heap)
        return True

    def next_deadline_ms(self) -> float | None:
        while self._heap and self._heap[0][2].finished:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expire(self, now_ms: float) -> int:
        """Ends every wait whose deadline has passed; returns how many."""
        expired = 0
        while self._heap and self._heap[0][0] <= now_ms:
            ticket = heapq.heappop(self._heap)[2]
            if ticket.finished:
                continue
            ticket.finished = True
            self.waiting -= 1
            expired += 1
            ticket.on_expired()
        return expired


class Purgatory:
    """Several kinds of waiting requests over one timer, which is set to the next deadline."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._kinds: list[Deadlines] = []
        self._timer: Cancellable | None = None
        self._timer_at_ms = float("inf")

    def add_kind(self) -> Deadlines:
        self._kinds.append(Deadlines())
        return self._kinds[-1]

    def park(self, ticket: Ticket, deadlines: Deadlines) -> None:
        deadlines.add(ticket)
        if ticket.deadline_ms < self._timer_at_ms:
            self._set_timer(ticket.deadline_ms)

    def _set_timer(self, at_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_ms = max(0.0, at_ms - self._clock.monotonic_ms())
        self._timer = self._scheduler.call_later(delay_ms / 1000.0, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_ms = float("inf")
        now_ms = self._clock.monotonic_ms()
        upcoming = []
        for deadlines in self._kinds:
            deadlines.expire(now_ms)
            next_ms = deadlines.next_deadline_ms()
            if next_ms is not None:
                upcoming.append(next_ms)
        # A handler may have parked a new ticket from within expire().
        if upcoming and min(upcoming) < self._timer_at_ms:
            self._set_timer(min(upcoming))


class ProgressListener(Protocol):
    """A reader of partitions: a waiting fetch, or a fetch session."""

    def on_progress(self, partitions: "Sequence[Partition]") -> None:
        """These have more to read, or have changed; once per loop pass at most."""
