"""Checks committed offsets (workloads/members.py): a confirmed commit stays.

Events: commit (group g, partition p, offset o, from t0 to t1, st ok or unknown), fetched (offsets
as a member or the watch got them, from t0 to t1).

    offset-back     a committed offset that is below one that was confirmed before it was asked for
    offset-unknown  an offset that nobody had committed

A commit of a lower offset that was under way in between explains a lower one: members do that
after a rebalance whose commit had failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    commits: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["e"] == "commit":
            commits[event["g"], event["p"]].append(event)
            verdict.counts[f"commits {event['st']}"] += 1
    for event in events:
        if event["e"] != "fetched":
            continue
        verdict.counts["offsets fetched"] += 1
        for text, offset in event["offsets"].items():
            place = (event["g"], int(text))
            _check(event, place, offset, commits[place], verdict)
    return verdict


def _check(
    fetched: Event, place: tuple[str, int], offset: int, commits: list[Event], verdict: Verdict
) -> None:
    confirmed = [c for c in commits if c["st"] == "ok" and c["t1"] < fetched["t0"]]
    newest = max(confirmed, key=lambda commit: int(commit["o"]), default=None)
    where = f"group {place[0]}, partition {place[1]}: {offset} at {fetched['t0']}"
    if offset >= 0 and not any(c["o"] == offset and c["t0"] < fetched["t1"] for c in commits):
        verdict.add("offset-unknown", f"{where}, which nobody had committed")
    elif newest is not None and offset < newest["o"]:
        later = _between(commits, newest["t0"], fetched["t1"])
        if not any(commit["o"] == offset for commit in later):
            verdict.add("offset-back", f"{where}, although {newest['o']} had been confirmed at "
                        f"{newest['t1']}")  # fmt: skip


def _between(commits: Iterable[Event], after: float, before: float) -> list[Event]:
    return [c for c in commits if c["t1"] > after and c["t0"] < before]
