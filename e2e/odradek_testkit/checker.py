"""Checks a history for anomalies: violations of what a log guarantees, whatever faults there were.

The anomalies, with the names that Jepsen's Kafka workload gave them where it has one:

    lost-write             acknowledged, and the final read passed its offset without seeing it;
                           or seen by a reader and gone in the end
    unseen                 acknowledged, and the final read ended before its offset
    duplicate              one id at two offsets (only an idempotent producer promises otherwise)
    inconsistent-offsets   two ids at one offset, or acknowledged at another offset than read
    reordered              the ids of one producer in one partition not in the order of sending
    nonmonotonic-poll      a reader got an offset that is not above the one before
    phantom                a record that no producer sent, or in another partition than sent to

Writes without an answer ("info") may be in the log or not. Nothing here does I/O; test_checker.py
plants each anomaly in a correct history and expects the checker to name it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek_testkit.history import FINAL, History, Read

SHOWN_MAX = 20  # thousands of anomalies usually have one cause


@dataclass(frozen=True)
class Anomaly:
    """One violation of what a log guarantees."""

    kind: str
    partition: int
    number: int  # the id of the record that it is about
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: partition {self.partition}, id {self.number}: {self.text}"


def check(history: History, *, idempotent: bool = True) -> list[Anomaly]:
    """All anomalies; without idempotence retries may duplicate and so reorder records."""
    found = [
        *_phantoms(history),
        *_lost_or_unseen(history),
        *_inconsistent_offsets(history),
        *_nonmonotonic_polls(history),
    ]
    if idempotent:
        found += [*_duplicates(history), *_reordered(history)]
    return found


def kinds(anomalies: Iterable[Anomaly]) -> set[str]:
    return {anomaly.kind for anomaly in anomalies}


def report(anomalies: list[Anomaly]) -> str:
    """The text of a failed assertion: how many anomalies of each kind, and the first of them."""
    counts: dict[str, int] = defaultdict(int)
    for anomaly in anomalies:
        counts[anomaly.kind] += 1
    lines = [f"{count} × {kind}" for kind, count in sorted(counts.items())]
    return "\n".join([*lines, *map(str, anomalies[:SHOWN_MAX])])


def _phantoms(history: History) -> Iterator[Anomaly]:
    for read in history.reads:
        write = history.writes.get(read.number)
        if write is None:
            yield _of(read, "phantom", f"read at offset {read.offset}, never sent")
        elif write.partition != read.partition:
            yield _of(read, "phantom", f"was sent to partition {write.partition}")


def _lost_or_unseen(history: History) -> Iterator[Anomaly]:
    """Records that an ack or a read has shown to be in the log, and that the final read lacks."""
    final = [read for read in history.reads if read.reader == FINAL]
    there = {(read.partition, read.number) for read in final}
    ends: dict[int, int] = defaultdict(lambda: -1)
    for read in final:
        ends[read.partition] = max(ends[read.partition], read.offset)
    known = {
        (w.partition, w.number): (w.offset, f"acknowledged at offset {w.offset}")
        for w in history.acked()
    }
    for read in history.reads:
        seen = (read.offset, f"{read.reader} read it at offset {read.offset}")
        known.setdefault((read.partition, read.number), seen)
    for (partition, number), (offset, how) in known.items():
        if (partition, number) in there:
            continue
        end = ends[partition]
        kind = "unseen" if offset > end else "lost-write"
        text = f"{how}, not in the final read, which ended at {end}"
        yield Anomaly(kind, partition, number, text)


def _inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    at: dict[tuple[int, int], int] = {}  # (partition, offset) → id
    final = {(r.partition, r.number, r.offset) for r in history.reads if r.reader == FINAL}
    there = {(partition, number) for partition, number, _ in final}
    for write in history.acked():
        if write.offset < 0:  # a retry was acknowledged as a duplicate, without its offset
            continue
        place = (write.partition, write.number)
        if place in there and (*place, write.offset) not in final:
            text = f"acknowledged at offset {write.offset}, read elsewhere"
            yield Anomaly("inconsistent-offsets", write.partition, write.number, text)
        other = at.setdefault((write.partition, write.offset), write.number)
        if other != write.number:
            text = f"acknowledged at offset {write.offset}, and so was id {other}"
            yield Anomaly("inconsistent-offsets", write.partition, write.number, text)
    for read in history.reads:
        other = at.setdefault((read.partition, read.offset), read.number)
        if other != read.number:
            text = f"{read.reader} read it at offset {read.offset}, which is of id {other}"
            yield _of(read, "inconsistent-offsets", text)


def _duplicates(history: History) -> Iterator[Anomaly]:
    first: dict[tuple[int, int], int] = {}
    for read in _final_in_order(history):
        offset = first.setdefault((read.partition, read.number), read.offset)
        if offset != read.offset:
            yield _of(read, "duplicate", f"at offset {offset} and at offset {read.offset}")


def _reordered(history: History) -> Iterator[Anomaly]:
    """Ids grow in the order of sending, so each producer's ids grow along each partition."""
    last: dict[tuple[int, int], Read] = {}  # (producer, partition) → its last record so far
    for read in _final_in_order(history):
        write = history.writes.get(read.number)
        if write is None:
            continue
        before = last.get((write.producer, read.partition))
        if before is not None and before.number > read.number:
            text = f"at offset {read.offset}, after id {before.number} at offset {before.offset}"
            yield _of(read, "reordered", text)
        last[write.producer, read.partition] = read


def _nonmonotonic_polls(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, int], int] = {}
    for read in history.reads:
        before = last.get((read.reader, read.partition), -1)
        if read.offset <= before:
            text = f"{read.reader} got offset {read.offset} after offset {before}"
            yield _of(read, "nonmonotonic-poll", text)
        last[read.reader, read.partition] = read.offset


def _final_in_order(history: History) -> list[Read]:
    final = (read for read in history.reads if read.reader == FINAL)
    return sorted(final, key=lambda read: (read.partition, read.offset))


def _of(read: Read, kind: str, text: str) -> Anomaly:
    return Anomaly(kind, read.partition, read.number, text)
