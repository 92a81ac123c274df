"""Checks exactly once (workloads/copying.py): each record that the group has passed, copied once.

Events: original (the final read of the source: partition p, first offset o, n records), found (the
final read_committed read of the target, value "partition offset"), committed (the group's offset o
in partition p at the end, -1: none), txn, end.

    duplicated      an original was copied twice
    lost            below the committed offset, and not copied
    reordered       copies in another order than their originals
    phantom         a copy of a record that does not exist
    ahead           a copy of a record that is not below the committed offset
"""

from __future__ import annotations

from collections import defaultdict

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event

FINAL = "final"


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    originals: dict[int, set[int]] = defaultdict(set)
    copies: dict[int, list[int]] = defaultdict(list)
    committed: dict[int, int] = {}
    for event in events:
        if event["e"] == "original":
            originals[event["p"]].update(range(event["o"], event["o"] + event["n"]))
        elif event["e"] == "found" and event["r"] == FINAL:
            partition, offset = map(int, event["v"].split())
            copies[partition].append(offset)
        elif event["e"] == "committed":
            committed[event["p"]] = max(event["o"], 0)
        elif event["e"] == "txn":
            verdict.counts[f"transactions {event['st']}"] += 1
        elif event["e"] == "end" and event["o"] < 0:
            verdict.add("unread", f"partition {event['p']} was not read to its end")
            return verdict
    for partition, end in committed.items():
        _check_partition(partition, originals[partition], copies[partition], end, verdict)
    return verdict


def _check_partition(
    partition: int, originals: set[int], copies: list[int], end: int, verdict: Verdict
) -> None:
    verdict.counts["copied"] += len(copies)
    seen: set[int] = set()
    highest = -1
    for offset in copies:
        where = f"partition {partition}, offset {offset}"
        if offset in seen:
            verdict.add("duplicated", where)
        elif offset < highest:
            verdict.add("reordered", f"{where} after {highest}")
        if offset not in originals:
            verdict.add("phantom", where)
        elif offset >= end:
            verdict.add("ahead", f"{where}, and {end} is committed")
        seen.add(offset)
        highest = max(highest, offset)
    missing = sorted(offset for offset in originals - seen if offset < end)
    if missing:
        text = f"partition {partition}: {len(missing)} records below the committed offset {end}"
        verdict.add("lost", f"{text}, from offset {missing[0]}")
