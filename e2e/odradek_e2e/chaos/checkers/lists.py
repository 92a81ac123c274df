"""Checks transactions that append and read, in the style of Elle (workloads/lists.py).

A key is a partition; its list is the partition. The final read gives the order in which values
were appended, so the dependencies between transactions are known, not guessed:

    ww    T1's value is directly before T2's value in a list
    wr    T2 read a value of T1

Events: txn (x, st, ops: ["a", key, value] and ["r", key, [[offset, value], …]]), found, end.

    lost            an append of a committed transaction is missing
    torn            one append of a transaction is there, another is not
    duplicated      a value at two offsets
    phantom         a value that nobody appended
    aborted-read    a value of an aborted transaction was read (G1a)
    moved           a value was read at another offset than in the final read
    skipped         a reader got a value without one that is before it
    backwards       a reader got an offset that is not above the one before
    G1c             a cycle of wr dependencies: each transaction has read from the next
    G0, G1c-ww      cycles with ww. Kafka's transactions do not isolate writes from each other, so
                    these are counted, and no violation (as in Jepsen's workload for Kafka)
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.checkers.graph import cycle
from odradek_e2e.chaos.history import Event

FINAL = "final"
ALLOWED = ("G0", "G1c-ww")
Edges = dict[str, set[str]]


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    txns = {event["x"]: event for event in events if event["e"] == "txn"}
    for txn in txns.values():
        verdict.counts[f"transactions {txn['st']}"] += 1
    unread = {e["p"] for e in events if e["e"] == "end" and e["o"] < 0}
    for key in sorted(unread):
        verdict.add("unread", f"partition {key} was not read to its end")
    lists = _final_lists(events, verdict)
    writers = {value: name for name, txn in txns.items() for _, _, value in _appends(txn)}
    _appended(txns, lists, unread, verdict)
    for key, values in lists.items():
        for value in values.values():
            _known(value, f"the final read of list {key}", txns, writers, verdict)
    for name, txn in txns.items():
        _reads(name, txn, (txns, writers), lists, verdict)
    _cycles(txns, writers, lists, verdict)
    return verdict


def _appends(txn: Event) -> list[list[object]]:
    return [op for op in txn["ops"] if op[0] == "a"]


def _final_lists(events: list[Event], verdict: Verdict) -> dict[int, dict[int, str]]:
    """Key → offset → value."""
    lists: dict[int, dict[int, str]] = defaultdict(dict)
    seen: dict[tuple[int, str], int] = {}
    for event in events:
        if event["e"] != "found" or event["r"] != FINAL:
            continue
        key, offset, value = event["p"], event["o"], event["v"]
        lists[key][offset] = value
        first = seen.setdefault((key, value), offset)
        if first != offset:
            verdict.add("duplicated", f"list {key}: {value} at offsets {first} and {offset}")
    return lists


def _appended(
    txns: dict[str, Event], lists: dict[int, dict[int, str]], unread: set[int], verdict: Verdict
) -> None:
    there = {(key, value) for key, values in lists.items() for value in values.values()}
    for name, txn in txns.items():
        appends = [(op[1], op[2]) for op in _appends(txn) if op[1] not in unread]
        missing = [append for append in appends if append not in there]
        if txn["st"] == "ok" and missing:
            verdict.add("lost", f"transaction {name}: {missing}")
        elif missing and len(missing) < len(appends):
            verdict.add("torn", f"transaction {name} ({txn['st']}): without {missing}")


def _known(
    value: str, where: str, txns: dict[str, Event], writers: dict[object, str], verdict: Verdict
) -> None:
    writer = writers.get(value)
    if writer is None:
        verdict.add("phantom", f"{where} has {value}, which nobody appended")
    elif txns[writer]["st"] == "aborted":
        verdict.add("aborted-read", f"{where} has {value} of transaction {writer}")


def _reads(
    name: str,
    txn: Event,
    known: tuple[dict[str, Event], dict[object, str]],
    lists: dict[int, dict[int, str]],
    verdict: Verdict,
) -> None:
    """Each read continues where the one before of this key ended, within the transaction."""
    ends: dict[int, int] = {}
    for op in txn["ops"]:
        if op[0] != "r":
            continue
        key, values = op[1], op[2]
        for offset, value in values:
            _known(value, f"transaction {name} read list {key}, which", *known, verdict)
            final = lists[key].get(offset)
            if final != value:
                verdict.add("moved", f"transaction {name} read {value} at offset {offset} of list "
                            f"{key}, where the final read has {final}")  # fmt: skip
            before = ends.get(key)
            if before is not None and offset <= before:
                verdict.add("backwards", f"transaction {name}, list {key}: {offset} after {before}")
            elif before is not None:
                between = [o for o in lists[key] if before < o < offset]
                if between:
                    verdict.add("skipped", f"transaction {name}, list {key}: offset {offset} after "
                                f"{before}, without {between[:3]}")  # fmt: skip
            ends[key] = offset


def _cycles(
    txns: dict[str, Event],
    writers: dict[object, str],
    lists: dict[int, dict[int, str]],
    verdict: Verdict,
) -> None:
    ww: Edges = defaultdict(set)
    wr: Edges = defaultdict(set)
    for values in lists.values():
        order = [writers[value] for _, value in sorted(values.items()) if value in writers]
        for first, second in pairwise(order):
            if first != second:
                ww[first].add(second)
    for name, txn in txns.items():
        for op in txn["ops"]:
            if op[0] == "r":
                for _, value in op[2]:
                    writer = writers.get(value)
                    if writer is not None and writer != name:
                        wr[writer].add(name)
    verdict.counts["dependencies ww"] += sum(map(len, ww.values()))
    verdict.counts["dependencies wr"] += sum(map(len, wr.values()))
    if found := cycle(wr):
        verdict.add("G1c", " → ".join(found))
    if cycle(ww):
        verdict.counts["G0 (allowed)"] += 1
    both = {name: ww.get(name, set()) | wr.get(name, set()) for name in {*ww, *wr}}
    if cycle(both):
        verdict.counts["G1c-ww (allowed)"] += 1
