"""Offsets with the same delivery state, as runs: what a share partition knows of its records.

A `RunList` covers a range of offsets without holes: 1,000 records that one member acquired in one
fetch are one run. An acknowledgement of record 500 splits it into three; equal neighbours are
joined again. Lookups bisect, so a list of some thousand runs is cheap.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from odradek_broker.share.states import COMPLETE, RecordState
from odradek_protocol.ids import Offset


class Delivery(NamedTuple):
    """The state of a record: the lock (member and deadline) only while it is acquired."""

    state: RecordState
    deliveries: int  # how often it was delivered
    member_id: str = ""
    deadline_ms: float = 0.0


@dataclass(slots=True)
class Run:
    """Offsets `first` to `last`, both included. `before` is set while a change is being written."""

    first: Offset
    last: Offset
    delivery: Delivery
    update: int = 0  # the number of the update that is being written; 0 if none is
    before: Delivery | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class RunList:
    """Invariants: runs ascend without holes; no two neighbours are equal; `complete` counts the
    offsets that are acknowledged or archived."""

    def __init__(self, start_offset: Offset) -> None:
        self.start = start_offset
        self.end = start_offset - 1  # the last offset that is covered
        self.complete = 0
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, last: Offset, delivery: Delivery) -> None:
        """Extends the range to `last`."""
        if last <= self.end:
            return
        self._runs.append(Run(self.end + 1, last, delivery))
        self._count(delivery, last - self.end)
        self.end = last
        self._join(len(self._runs) - 1, len(self._runs) - 1)

    def within(self, first: Offset, last: Offset) -> list[Run]:
        """The runs of these offsets, split so that they cover exactly the part that is known."""
        first, last = max(first, self.start), min(last, self.end)
        if first > last:
            return []
        at = self._split(first)
        return self._runs[at : self._split(last + 1)]

    def overlapping(self, first: Offset, last: Offset) -> Iterator[Run]:
        """The runs that have some of these offsets, unchanged."""
        at = max(self._index(max(first, self.start)), 0)
        while at < len(self._runs) and self._runs[at].first <= last:
            yield self._runs[at]
            at += 1

    def set(self, run: Run, delivery: Delivery) -> None:
        self._count(run.delivery, -run.size)
        self._count(delivery, run.size)
        run.delivery = delivery

    def join_around(self, first: Offset, last: Offset) -> None:
        """Joins equal neighbours in and next to these offsets."""
        if self._runs:
            self._join(max(self._index(first), 0), max(self._index(last), 0) + 1)

    def drop_before(self, offset: Offset) -> None:
        """Forgets everything below; the range then begins at `offset`."""
        if offset <= self.start:
            return
        at = self._split(offset) if offset <= self.end else len(self._runs)
        for run in self._runs[:at]:
            self._count(run.delivery, -run.size)
        del self._runs[:at]
        self.start = offset
        self.end = max(self.end, offset - 1)

    def validate(self) -> None:
        """Assert every invariant; for tests, after each step."""
        at, complete = self.start, 0
        for run in self._runs:
            assert run.first == at, f"a hole before {run}"
            assert run.last >= run.first, run
            assert (run.before is None) == (run.update == 0), run
            at = run.last + 1
            complete += run.size if run.delivery.state in COMPLETE else 0
        assert at == self.end + 1, f"the runs end at {at - 1}, not at {self.end}"
        assert complete == self.complete, f"{complete} are complete, not {self.complete}"
        for left, right in zip(self._runs, self._runs[1:], strict=False):
            assert not _alike(left, right), f"{left} and {right} are not joined"

    def _count(self, delivery: Delivery, size: int) -> None:
        if delivery.state in COMPLETE:
            self.complete += size

    def _index(self, offset: Offset) -> int:
        return bisect_right(self._runs, offset, key=_first) - 1

    def _split(self, offset: Offset) -> int:
        """The index of the run that begins at `offset`, which is split off if needed."""
        if offset > self.end:
            return len(self._runs)
        at = self._index(offset)
        run = self._runs[at]
        if run.first == offset:
            return at
        right = Run(offset, run.last, run.delivery, run.update, run.before)
        run.last = offset - 1
        self._runs.insert(at + 1, right)
        return at + 1

    def _join(self, low: int, high: int) -> None:
        """Joins equal runs among indexes low - 1 … high."""
        runs = self._runs
        low, high = max(low - 1, 0), min(high, len(runs) - 1)
        joined: list[Run] = []
        for run in runs[low : high + 1]:
            if joined and _alike(joined[-1], run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) != high - low + 1:
            runs[low : high + 1] = joined


def _first(run: Run) -> Offset:
    return run.first


def _alike(left: Run, right: Run) -> bool:
    return (
        left.delivery == right.delivery
        and left.update == right.update
        and left.before == right.before
    )
