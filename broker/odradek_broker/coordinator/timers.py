"""Deadlines by key, which a shard sets, moves and cancels. Does no I/O.

A moved or cancelled deadline stays in the heap until it is reached, or until such entries are the
majority; then the heap is rebuilt. A heartbeat that only moves a deadline further away costs one
dict entry: its old heap entry, when reached, is put back with the new deadline.
"""

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# Rebuilding a smaller heap than this saves nothing.
REBUILD_FROM = 1024


class Timers(Generic[K]):
    """Invariant: every key has a heap entry at or before its deadline."""

    __slots__ = ("_deadlines", "_heads", "_heap", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[K, float] = {}
        self._heads: dict[K, float] = {}  # the earliest heap entry of a key
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def deadline_ms(self, key: K) -> float | None:
        return self._deadlines.get(key)

    def set(self, key: K, deadline_ms: float) -> None:
        """Sets the deadline of the key, or moves it."""
        self._deadlines[key] = deadline_ms
        head = self._heads.get(key)
        if head is None or deadline_ms < head:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)
        if len(self._heap) > REBUILD_FROM and 2 * len(self._deadlines) < len(self._heap):
            self._heap.clear()
            self._heads.clear()
            for kept, deadline_ms in self._deadlines.items():
                self._push(kept, deadline_ms)

    def next_deadline_ms(self) -> float:
        """Infinity if none is set. Drops outdated heap entries, so that the first one is valid."""
        heap = self._heap
        while heap:
            at_ms, _, key = heap[0]
            wanted = self._deadlines.get(key)
            if wanted == at_ms:
                return at_ms
            heapq.heappop(heap)
            if self._heads.get(key) == at_ms:
                del self._heads[key]
                if wanted is not None:
                    self._push(key, wanted)
        return float("inf")

    def pop_due(self, now_ms: float) -> K | None:
        """Removes and returns the earliest key that is due, or None."""
        if self.next_deadline_ms() > now_ms:
            return None
        at_ms, _, key = heapq.heappop(self._heap)
        if self._heads.get(key) == at_ms:
            del self._heads[key]
        del self._deadlines[key]
        return key

    def _push(self, key: K, deadline_ms: float) -> None:
        heapq.heappush(self._heap, (deadline_ms, next(self._sequence), key))
        self._heads[key] = deadline_ms
