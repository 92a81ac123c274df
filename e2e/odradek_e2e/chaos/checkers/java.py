"""Checks the records of the Java producer (workloads/java.py): values are used once.

Events: acked (value v at offset o of partition p), found (the final read), end.

    lost            acknowledged, and not in the final read
    duplicated      a value twice
    reordered       values of a partition do not grow with the offsets
    moved           acknowledged at another place than found
"""

from __future__ import annotations

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    found: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    for event in events:
        if event["e"] == "end" and event["o"] < 0:
            verdict.add("unread", f"partition {event['p']} was not read to its end")
            return verdict
        if event["e"] != "found":
            continue
        value, place = int(event["v"]), (event["p"], event["o"])
        if value in found:
            verdict.add("duplicated", f"{value} at {found[value]} and at {place}")
        elif value < last.get(event["p"], -1):
            verdict.add("reordered", f"{value} at {place} after {last[event['p']]}")
        found[value] = place
        last[event["p"]] = max(last.get(event["p"], -1), value)
    for event in events:
        if event["e"] == "acked":
            verdict.counts["acknowledged"] += 1
            value, place = int(event["v"]), (event["p"], event["o"])
            if value not in found:
                verdict.add("lost", f"{value}, acknowledged at {place}")
            elif event["o"] >= 0 and found[value] != place:
                verdict.add("moved", f"{value}, acknowledged at {place}, is at {found[value]}")
    return verdict
