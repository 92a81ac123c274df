"""Checks a topic that is deleted and created again under the same name (workloads/admin.py).

Events: created, deleted, acked and read (in life number `life`: partition p, offset o, value
v = "life index").

    earlier-life    a record of a life before, after the topic had been created anew
    moved           acknowledged at one offset, read at another, within one life
"""

from __future__ import annotations

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    places: dict[tuple[int, str], tuple[int, int]] = {}
    for event in events:
        if event["e"] in ("created", "deleted"):
            verdict.counts[f"topics {event['e']}"] += 1
        if event["e"] not in ("acked", "read"):
            continue
        life, value, place = event["life"], event["v"], (event["p"], event["o"])
        if event["e"] == "read" and int(value.split()[0]) != life:
            verdict.add("earlier-life", f"life {life} has {value!r} at {place}")
        if event["o"] >= 0 and places.setdefault((life, value), place) != place:
            known = places[life, value]
            verdict.add("moved", f"life {life}: {value!r} at {known} and at {place}")
    return verdict
