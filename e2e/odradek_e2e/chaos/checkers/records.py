"""Checks topics of numbered records (workloads/writers.py): nothing lost, twice, or out of order.

Events: sent (numbers below n may be in the log), acked (numbers s … s+n-1 at offsets o …), read
(by reader r, at offsets o …), end (the final read reached the end of partition p at offset o),
trim (DeleteRecords below o was asked for), trimmed (it was confirmed), out-of-range.

    lost            acknowledged, and not in the final read; or read by anybody, and gone
    unread          the final read did not reach the end of a partition
    duplicated      one number at two offsets
    reordered       a writer's numbers in one partition do not grow with the offsets
    moved           acknowledged or read at another offset than in the final read
    phantom         a record that was never sent, or was sent to another partition
    backwards       a reader got an offset that is not above the one before
    out-of-range    an offset that a reader had reached was not there any more
    undeleted       the final read found a record below a confirmed DeleteRecords
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event

FINAL = "final"
Writer = tuple[int, int]  # writer, partition


class Run(NamedTuple):
    """Consecutive numbers at consecutive offsets."""

    first: int
    offset: int
    length: int


class Final:
    """The final read of one writer's records in one partition, in the order of numbers."""

    def __init__(self, runs: list[Run]) -> None:
        self._runs = sorted(runs)
        self._firsts = [run.first for run in self._runs]

    def missing(self, first: int, count: int) -> list[Run]:
        """The parts of first … first+count-1 that are not there; their offsets are 0."""
        found, at = [], first
        while at < first + count:
            index = bisect_right(self._firsts, at) - 1
            run = self._runs[index] if index >= 0 else Run(0, 0, 0)
            if run.first <= at < run.first + run.length:
                at = run.first + run.length
                continue
            end = self._firsts[index + 1] if index + 1 < len(self._firsts) else first + count
            end = min(end, first + count)
            found.append(Run(at, 0, end - at))
            at = end
        return found

    def offset_of(self, number: int) -> int:
        """Where it is; -1 if it is not there."""
        index = bisect_right(self._firsts, number) - 1
        if index < 0:
            return -1
        run = self._runs[index]
        inside = run.first <= number < run.first + run.length
        return run.offset + number - run.first if inside else -1


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    final = _final_read(events, verdict)
    kept_from = _trims(events)
    _order_of_final(events, verdict)
    _phantoms(events, verdict)
    _known_records(events, final, kept_from, verdict)
    _readers(events, kept_from, verdict)
    return verdict


def _final_read(events: list[Event], verdict: Verdict) -> dict[Writer, Final]:
    runs: dict[Writer, list[Run]] = defaultdict(list)
    for event in events:
        if event["e"] == "read" and event["r"] == FINAL:
            runs[event["w"], event["p"]].append(Run(event["s"], event["o"], event["n"]))
            verdict.counts["read at the end"] += event["n"]
        elif event["e"] == "end" and event["o"] < 0:
            verdict.add("unread", f"partition {event['p']} was not read to its end")
    return {writer: Final(found) for writer, found in runs.items()}


def _trims(events: list[Event]) -> dict[int, int]:
    """Partition → the offset below which records may be missing."""
    below: dict[int, int] = defaultdict(int)
    for event in events:
        if event["e"] in ("trim", "trimmed"):
            below[event["p"]] = max(below[event["p"]], event["o"])
    return below


def _order_of_final(events: list[Event], verdict: Verdict) -> None:
    """Offsets and numbers grow together."""
    last: dict[Writer, Run] = {}
    confirmed: dict[int, int] = defaultdict(int)
    for event in events:
        if event["e"] == "trimmed":
            confirmed[event["p"]] = max(confirmed[event["p"]], event["o"])
    for event in events:
        if event["e"] != "read" or event["r"] != FINAL:
            continue
        run, who = Run(event["s"], event["o"], event["n"]), (event["w"], event["p"])
        if run.offset < confirmed[event["p"]]:
            verdict.add("undeleted", f"partition {event['p']}: offset {run.offset}, although "
                        f"DeleteRecords below {confirmed[event['p']]} was confirmed")  # fmt: skip
        before = last.get(who)
        if before is not None and run.first < before.first + before.length:
            again = run.first + run.length > before.first
            text = f"writer {who[0]}, partition {who[1]}: {_at(run)} after {_at(before)}"
            verdict.add("duplicated" if again else "reordered", text)
        if before is None or run.first + run.length > before.first + before.length:
            last[who] = run


def _phantoms(events: list[Event], verdict: Verdict) -> None:
    sent: dict[Writer, int] = defaultdict(int)
    for event in events:
        if event["e"] == "sent":
            sent[event["w"], event["p"]] = max(sent[event["w"], event["p"]], event["n"])
    for event in events:
        if event["e"] == "closed":
            sent[event["w"], event["p"]] = event["n"]
    for event in events:
        if event["e"] == "read" and event["s"] + event["n"] > sent[event["w"], event["p"]]:
            text = f"{event['r']} read numbers {event['s']} and up of writer {event['w']} in "
            verdict.add("phantom", f"{text}partition {event['p']}, which it did not send there")


def _known_records(
    events: list[Event], final: dict[Writer, Final], kept_from: dict[int, int], verdict: Verdict
) -> None:
    """Records that were acknowledged or read must be in the final read, at the same offset."""
    nothing = Final([])
    for event in events:
        acked = event["e"] == "acked"
        if acked:
            verdict.counts["acknowledged"] += event["n"]
        elif event["e"] == "unknown":
            verdict.counts["unknown"] += event["n"]
        if not acked and not (event["e"] == "read" and event["r"] != FINAL):
            continue
        how = "acknowledged" if acked else f"read by {event['r']}"
        there = final.get((event["w"], event["p"]), nothing)
        below = kept_from.get(event["p"], 0)
        where = f"writer {event['w']}, partition {event['p']}"
        for gap in there.missing(event["s"], event["n"]):
            offset = event["o"] + gap.first - event["s"] if event["o"] >= 0 else -1
            last = offset + gap.length - 1
            # Without an offset (the ack of a retry) it cannot be told from what was trimmed.
            if below and (offset < 0 or last < below):
                continue
            verdict.add("lost", f"{where}: {gap.length} records from number {gap.first}, {how} at "
                        f"offset {offset}")  # fmt: skip
        _same_offsets(event, there, (where, how), verdict)


def _same_offsets(event: Event, there: Final, words: tuple[str, str], verdict: Verdict) -> None:
    """Both ends of the run are enough: in between numbers and offsets grow by one."""
    if event["o"] < 0:
        return
    for at in (0, event["n"] - 1):
        found = there.offset_of(event["s"] + at)
        if found >= 0 and found != event["o"] + at:
            where, how = words
            verdict.add("moved", f"{where}: number {event['s'] + at}, {how} at offset "
                        f"{event['o'] + at}, is at {found}")  # fmt: skip


def _readers(events: list[Event], kept_from: dict[int, int], verdict: Verdict) -> None:
    """Per writer, because runs of several writers in one partition are noted as they end."""
    last: dict[tuple[str, int, int], int] = {}
    for event in events:
        if event["e"] == "out-of-range" and not kept_from:
            verdict.add("out-of-range", f"{event['r']}, partition {event['p']}: {event['why']}")
        if event["e"] != "read" or event["r"] == FINAL:
            continue
        verdict.counts["read meanwhile"] += event["n"]
        key = (event["r"], event["p"], event["w"])
        before = last.get(key, -1)
        if event["o"] <= before:
            verdict.add("backwards", f"{event['r']}, partition {event['p']}: offset {event['o']} "
                        f"after {before}")  # fmt: skip
        last[key] = event["o"] + event["n"] - 1


def _at(run: Run) -> str:
    return f"{run.first}…{run.first + run.length - 1} at offset {run.offset}"
