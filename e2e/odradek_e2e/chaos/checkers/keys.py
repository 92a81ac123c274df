"""Checks the key-value model (workloads/keys.py): compaction keeps the newest value of each key.

Events: put (key k, version v, d: a tombstone), acked (at offset o), found (the final read: key k,
value v = "version …" or null, offset o, partition p), end.

    lost            the newest version that is there is older than one that was acknowledged
    resurrected     the newest acknowledged version is a tombstone, and an older value is there
    reordered       versions of a key do not grow with the offsets
    phantom         a version that was never put, or of another key
    moved           acknowledged at another offset than found
"""

from __future__ import annotations

from collections import defaultdict

from odradek_e2e.chaos.checkers.anomaly import Verdict
from odradek_e2e.chaos.history import Event


def check(subject: str, events: list[Event]) -> Verdict:
    verdict = Verdict(subject)
    puts = {event["v"]: event for event in events if event["e"] == "put"}
    acked = {event["v"]: event for event in events if event["e"] == "acked"}
    verdict.counts["acknowledged"] += len(acked)
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["e"] == "end" and event["o"] < 0:
            verdict.add("unread", f"partition {event['p']} was not read to its end")
            return verdict
        if event["e"] == "found":
            found[int(event["k"])].append(event)
    by_place = {(event["p"], event["o"]): event["v"] for event in acked.values() if event["o"] >= 0}
    for key, records in found.items():
        _in_order(key, records, (puts, by_place), verdict)
    newest: dict[int, int] = {}
    for version, event in acked.items():
        newest[event["k"]] = max(newest.get(event["k"], 0), version)
    for key, version in newest.items():
        _newest_is_there(key, version, (puts, by_place), found[key], verdict)
    return verdict


def _version(record: Event, by_place: dict[tuple[int, int], int]) -> int:
    """Of a tombstone it is known by its place only; 0 if that was not acknowledged."""
    if record["v"] is None:
        return by_place.get((record["p"], record["o"]), 0)
    return int(record["v"].split()[0])


def _in_order(
    key: int,
    records: list[Event],
    known: tuple[dict[int, Event], dict[tuple[int, int], int]],
    verdict: Verdict,
) -> None:
    puts, by_place = known
    before = 0
    for record in records:
        version = _version(record, by_place)
        if not version:
            continue
        put = puts.get(version)
        if put is None or put["k"] != key:
            verdict.add("phantom", f"key {key}: version {version} at offset {record['o']}")
        elsewhere = by_place.get((record["p"], record["o"]), version)
        if elsewhere != version:
            verdict.add("moved", f"key {key}: version {version} at offset {record['o']}, where "
                        f"{elsewhere} was acknowledged")  # fmt: skip
        if version <= before:
            verdict.add("reordered", f"key {key}: version {version} after {before}")
        before = max(before, version)


def _newest_is_there(
    key: int,
    acked: int,
    known: tuple[dict[int, Event], dict[tuple[int, int], int]],
    records: list[Event],
    verdict: Verdict,
) -> None:
    """A tombstone may have been removed, then nothing of the key is left."""
    puts, by_place = known
    last = records[-1] if records else None
    if last is None:
        if not any(put["d"] for v, put in puts.items() if v >= acked and put["k"] == key):
            verdict.add(
                "lost", f"key {key}: version {acked} was acknowledged, and nothing is there"
            )
        return
    if last["v"] is None:
        return  # a tombstone at the end: of the newest version, or of a later one
    version = _version(last, by_place)
    if version < acked:
        kind = "resurrected" if puts[acked]["d"] else "lost"
        verdict.add(kind, f"key {key}: version {version} is the newest, {acked} was acknowledged")
