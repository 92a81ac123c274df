"""Checks the offsets that brokers reported (workloads/watch.py).

Events: offsets (what: hw, lso or start; of topic: partition → [offset, leader epoch]; asked between
t0 and t1), trimmed (topic, p, o, at t: DeleteRecords was confirmed).

    high-watermark-back     ListOffsets gave a lower high watermark than an earlier answer did
    last-stable-back        the same for the last stable offset
    log-start-back          the log starts below a confirmed DeleteRecords

A broker that has not learnt yet that it leads no more may answer late and low: answers are compared
only with those of the same or an older leader epoch (KIP-207 keeps a new leader from answering
before its high watermark has caught up).
"""

from __future__ import annotations

from collections import defaultdict

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event

KINDS = {"hw": "high-watermark-back", "lso": "last-stable-back"}
Seen = tuple[float, float, int, int]  # asked, answered, offset, leader epoch


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    seen: dict[tuple[str, str, int], list[Seen]] = defaultdict(list)
    trimmed: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        if event["e"] == "trimmed":
            trimmed[event["topic"], event["p"]].append((event["t"], event["o"]))
        if event["e"] != "offsets":
            continue
        for partition, (offset, epoch) in event["of"].items():
            verdict.counts["offsets asked"] += 1
            place = (event["what"], event["topic"], int(partition))
            seen[place].append((event["t0"], event["t1"], offset, epoch))
    for (what, topic, partition), answers in seen.items():
        where = f"{topic}-{partition}"
        if what in KINDS:
            _monotonic(KINDS[what], where, answers, verdict)
        else:
            _not_below(where, answers, trimmed[topic, partition], verdict)
    return verdict


def _monotonic(kind: str, where: str, answers: list[Seen], verdict: Verdict) -> None:
    """Sweeps the answers by time; `best` are those that were complete before the one asked."""
    done = sorted(answers, key=lambda answer: answer[1])
    index = 0
    best: dict[int, int] = {}  # leader epoch → the highest offset answered under it
    for asked, _, offset, epoch in sorted(answers):
        while index < len(done) and done[index][1] < asked:
            _, _, earlier, of_epoch = done[index]
            best[of_epoch] = max(best.get(of_epoch, 0), earlier)
            index += 1
        before = max((o for e, o in best.items() if e <= epoch), default=0)
        if offset < before:
            verdict.add(kind, f"{where}: {offset} (leader epoch {epoch}) at {asked}, {before} was "
                        "answered before")  # fmt: skip


def _not_below(
    where: str, answers: list[Seen], trimmed: list[tuple[float, int]], verdict: Verdict
) -> None:
    newest = max((asked for asked, *_ in answers), default=0.0)
    for at, below in trimmed:
        for asked, _, offset, _ in answers:
            # Only the last second is certain: an old leader may answer before it learns.
            if asked > at and asked > newest - 1.0 and offset < below:
                verdict.add("log-start-back", f"{where}: starts at {offset}, records below {below} "
                            "had been deleted")  # fmt: skip
                return
