"""The positions of the newest batches of a segment, in memory.

A consumer at the tail asks for an offset that was just written. This finds it without reading index
or file: three parallel lists, searched with `bisect`. (Arrays would take a third of
the memory and five times as long to append to.)

Offsets are relative to the segment's base offset, as in the index files. Example, base 100:
two batches of offsets 100-104 (200 bytes) and 105 (70 bytes) give
`bases=[0, 5] lasts=[4, 5] positions=[0, 200]`.
"""

from bisect import bisect_left, bisect_right
from typing import Final

# 256 batches are 30 KB; the older half is dropped when they are reached.
RECENT_BATCHES_MAX: Final = 256


class RecentBatches:
    """Invariant: the three lists have equal length; `lasts` and `positions` ascend strictly."""

    __slots__ = ("bases", "lasts", "positions")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.lasts: list[int] = []
        self.positions: list[int] = []

    def add(self, base: int, last: int, position: int) -> None:
        self.bases.append(base)
        self.lasts.append(last)
        self.positions.append(position)
        if len(self.lasts) >= RECENT_BATCHES_MAX:
            half = RECENT_BATCHES_MAX // 2
            del self.bases[:half], self.lasts[:half], self.positions[:half]

    def find(self, relative_offset: int) -> int:
        """The index of the first batch that ends at or after this offset; -1 if unknown.

        `len(lasts)` means: every batch ends before it. Batch 0 is only an answer if it is the
        segment's first one; else an older batch, which is not kept any more, may be the right one.
        """
        found = bisect_left(self.lasts, relative_offset)
        if found == 0 and (not self.positions or self.positions[0] != 0):
            return -1
        return found

    def last_boundary(self, start: int, limit: int) -> int:
        """The last known batch border in (start, limit], or `limit` if none is known there."""
        found = bisect_right(self.positions, limit) - 1
        if found >= 0 and self.positions[found] > start:
            return self.positions[found]
        return limit

    def truncate(self, position: int) -> None:
        keep = bisect_left(self.positions, position)
        del self.bases[keep:], self.lasts[keep:], self.positions[keep:]
