"""Checks transfers (workloads/bank.py): a transaction is seen whole or not at all.

Events: txn (name x, state st: ok, aborted or unknown), found (a record that a read_committed reader
saw: key k = account, value v = "name change"), end.

    lost            committed, and a record of it is missing in the final read
    torn            one of its two records is there without the other
    aborted-read    a record of an aborted transaction was read
    phantom         a record of a transaction that nobody began, or more than two of one
    sum             all amounts together are not 0
"""

from __future__ import annotations

from collections import defaultdict

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event

FINAL = "final"
RECORDS = 2


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    states = {event["x"]: event["st"] for event in events if event["e"] == "txn"}
    for state in states.values():
        verdict.counts[f"transactions {state}"] += 1
    found: dict[str, list[int]] = defaultdict(list)
    readable = True
    for event in events:
        if event["e"] == "end" and event["o"] < 0:
            verdict.add("unread", f"partition {event['p']} was not read to its end")
            readable = False
        if event["e"] != "found":
            continue
        name, _, change = event["v"].partition(" ")
        if states.get(name) == "aborted":
            verdict.add("aborted-read", f"{event['r']} read transaction {name} at offset "
                        f"{event['o']} of partition {event['p']}")  # fmt: skip
        if event["r"] == FINAL:
            found[name].append(int(change))
    if readable:
        _whole(states, found, verdict)
    return verdict


def _whole(states: dict[str, str], found: dict[str, list[int]], verdict: Verdict) -> None:
    for name, state in states.items():
        if state == "ok" and not found[name]:
            verdict.add("lost", f"transaction {name} was committed, and nothing of it is there")
    for name, changes in found.items():
        if (changes and name not in states) or len(changes) > RECORDS:
            verdict.add("phantom", f"{len(changes)} records of transaction {name}")
        elif len(changes) == 1:
            verdict.add("torn", f"one record of transaction {name} ({states[name]})")
    total = sum(sum(changes) for changes in found.values())
    if total != 0:
        verdict.add("sum", f"all changes add up to {total}")
