"""Each checker of the campaign against a correct history, and against one with each anomaly."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from odradek_e2e.chaos.checkers import CHECKERS, check_directory
from odradek_e2e.chaos.checkers.graph import cycle
from odradek_e2e.chaos.history import Event, Recorder


def event(kind: str, **fields: Any) -> Event:
    return {"e": kind, **fields}


def end(*partitions: int) -> list[Event]:
    return [event("end", r="final", p=p, o=100) for p in partitions]


def run(kind: str, first: int, count: int, offset: int, **fields: Any) -> Event:
    return event(kind, **{"w": 0, "p": 0, "s": first, "n": count, "o": offset, "t": 1.0, **fields})


def final(first: int, count: int, offset: int, **fields: Any) -> Event:
    return run("read", first, count, offset, r="final", **fields)


SENT = event("sent", w=0, p=0, n=10)
LOG = [SENT, run("acked", 0, 10, 0), run("read", 0, 10, 0, r="reader-0"), final(0, 10, 0), *end(0)]
TRIMMED = [event("trim", topic="trim", p=0, o=4), event("trimmed", topic="trim", p=0, o=4, t=2.0)]


def txn(name: str, state: str = "ok", **fields: Any) -> Event:
    return event("txn", x=name, st=state, t0=1.0, t1=2.0, **fields)


def found(offset: int, value: str | None, key: str = "", partition: int = 0) -> Event:
    return event("found", r="final", p=partition, o=offset, k=key, v=value)


BANK = [txn("a"), txn("b", "aborted"), txn("c", "unknown"), found(0, "a -5"), found(1, "a 5", "1"),
        *end(0)]  # fmt: skip
LISTS = [
    txn("a", ops=[["a", 0, "a.0"], ["a", 1, "a.1"]]),
    txn("b", ops=[["r", 0, [[0, "a.0"]]], ["a", 0, "b.1"]]),
    txn("c", "aborted", ops=[["a", 0, "c.0"]]),
    found(0, "a.0"), found(2, "b.1"), found(0, "a.1", partition=1), *end(0, 1),
]  # fmt: skip
COPY = [event("original", w=0, p=0, s=0, n=5, o=0, t=1.0), event("committed", p=0, o=3),
        *(found(i, f"0 {i}") for i in range(3)), *end(0)]  # fmt: skip


def commit(offset: int, at: float, state: str = "ok") -> Event:
    return event("commit", g="g", p=0, o=offset, st=state, t0=at, t1=at + 0.1)


def fetched(offset: int, at: float) -> Event:
    return event("fetched", g="g", t0=at, t1=at + 0.1, offsets={"0": offset})


GROUPS = [commit(5, 1.0), fetched(5, 2.0), commit(9, 3.0), fetched(9, 4.0)]


def put(key: int, version: int, *, deleted: bool = False) -> list[Event]:
    return [event("put", k=key, v=version, d=deleted),
            event("acked", k=key, v=version, p=0, o=version, t=1.0)]  # fmt: skip


KEYS = [*put(1, 1), *put(1, 2), *put(2, 3), *put(2, 4, deleted=True), *put(3, 5),
        found(2, "2 ..", "1"), found(4, None, "2"), found(5, "5 ..", "3"), *end(0)]  # fmt: skip


def offsets(what: str, offset: int, at: float, epoch: int = 1) -> Event:
    return event("offsets", what=what, topic="trim", of={"0": [offset, epoch]}, b=1, t0=at,
                 t1=at + 0.1)  # fmt: skip


OFFSETS = [offsets("hw", 5, 1.0), offsets("hw", 7, 2.0), offsets("lso", 5, 1.0),
           offsets("hw", 6, 3.0, epoch=0),  # late, from a leader that was replaced
           TRIMMED[1], offsets("start", 4, 3.0)]  # fmt: skip
CHURN = [event("created", life=1), event("acked", life=1, p=0, o=0, v="1 0"),
         event("read", life=1, p=0, o=0, v="1 0"), event("deleted", life=1)]  # fmt: skip
JAVA = [event("acked", v=0, p=0, o=0, t=1.0), event("acked", v=1, p=0, o=1, t=1.0),
        found(0, "0"), found(1, "1"), *end(0)]  # fmt: skip
CORRECT = {
    "log": LOG, "bank": BANK, "lists": LISTS, "copy": COPY, "groups": GROUPS, "keys": KEYS,
    "offsets": OFFSETS, "churn": CHURN, "java": JAVA,
}  # fmt: skip


@pytest.mark.parametrize("subject", CORRECT)
def test_nothing_is_found_in_a_correct_history(subject: str) -> None:
    verdict = CHECKERS[subject](subject, CORRECT[subject])
    assert verdict.anomalies == []
    assert verdict.counts


def without(events: Iterable[Event], *removed: Event) -> list[Event]:
    return [one for one in events if one not in removed]


KNOWN_BAD: list[tuple[str, str, list[Event]]] = [
    ("log", "lost", [SENT, run("acked", 0, 10, 0), final(0, 4, 0), final(6, 4, 6), *end(0)]),
    ("log", "lost", [SENT, run("read", 0, 10, 0, r="reader-0"), final(0, 9, 0), *end(0)]),
    ("log", "unread", [SENT, event("end", r="final", p=0, o=-1)]),
    ("log", "duplicated", [*LOG, final(7, 3, 10)]),
    ("log", "reordered", [SENT, final(5, 5, 0), final(0, 5, 5), *end(0)]),
    ("log", "moved", [SENT, run("acked", 0, 10, 3), final(0, 10, 0), *end(0)]),
    ("log", "phantom", [*LOG, final(10, 1, 10)]),
    ("log", "phantom", [*LOG, final(0, 1, 0, p=1), *end(1)]),
    ("log", "backwards", [*LOG, run("read", 0, 5, 0, r="reader-0")]),
    ("log", "out-of-range", [*LOG, event("out-of-range", r="reader-0", p=0, why="…")]),
    ("trim", "undeleted", [*LOG, *TRIMMED]),
    ("trim", "lost", [SENT, run("acked", 0, 10, 0), final(6, 4, 6), *end(0), *TRIMMED]),
    ("bank", "lost", without(BANK, *BANK[3:5])),
    ("bank", "torn", without(BANK, BANK[4])),
    ("bank", "sum", without(BANK, BANK[4])),
    ("bank", "aborted-read", [*BANK, found(3, "b 1"), found(4, "b -1")]),
    ("bank", "phantom", [*BANK, found(3, "z 1"), found(4, "z -1")]),
    ("bank", "phantom", [*BANK, found(3, "a 1"), found(4, "a -1")]),
    ("bank", "unread", [*BANK, event("end", r="final", p=1, o=-1)]),
    ("lists", "lost", without(LISTS, LISTS[5])),
    ("lists", "torn", [*LISTS, txn("u", "unknown", ops=[["a", 0, "u.0"], ["a", 1, "u.1"]]),
                       found(3, "u.0")]),
    ("lists", "duplicated", [*LISTS, found(9, "a.0")]),
    ("lists", "phantom", [*LISTS, found(9, "z.0")]),
    ("lists", "aborted-read", [*LISTS, found(3, "c.0")]),
    ("lists", "aborted-read", [*LISTS, txn("d", ops=[["r", 0, [[1, "c.0"]]]])]),
    ("lists", "moved", [*LISTS, txn("d", ops=[["r", 0, [[5, "a.0"]]]])]),
    ("lists", "skipped", [*LISTS, found(3, "e.0"), txn("e", ops=[["a", 0, "e.0"]]),
                          txn("d", ops=[["r", 0, [[0, "a.0"], [3, "e.0"]]]])]),
    ("lists", "backwards", [*LISTS, txn("d", ops=[["r", 0, [[2, "b.1"], [0, "a.0"]]]])]),
    ("lists", "G1c", [txn("a", ops=[["a", 0, "a.0"], ["r", 1, [[0, "b.0"]]]]),
                      txn("b", ops=[["a", 1, "b.0"], ["r", 0, [[0, "a.0"]]]]),
                      found(0, "a.0"), found(0, "b.0", partition=1), *end(0, 1)]),
    ("copy", "duplicated", [*COPY, found(7, "0 1")]),
    ("copy", "lost", without(COPY, COPY[3])),
    ("copy", "reordered", [*without(COPY, COPY[2]), found(7, "0 0")]),
    ("copy", "phantom", [*COPY, found(7, "0 9")]),
    ("copy", "ahead", [*COPY, found(7, "0 4")]),
    ("groups", "offset-back", [*GROUPS, fetched(5, 5.0)]),
    ("groups", "offset-back", [*GROUPS, fetched(-1001, 5.0)]),
    ("groups", "offset-unknown", [*GROUPS, fetched(77, 5.0)]),
    ("keys", "lost", without(KEYS, KEYS[10])),
    ("keys", "lost", [*without(KEYS, KEYS[10]), found(1, "1 ..", "1")]),
    ("keys", "resurrected", [*without(KEYS, KEYS[11]), found(3, "3 ..", "2")]),
    ("keys", "reordered", [*KEYS[:10], found(2, "2 ..", "1"), found(7, "1 ..", "1"), *KEYS[11:]]),
    ("keys", "phantom", [*KEYS, found(6, "5 ..", "1")]),
    ("keys", "moved", [*without(KEYS, KEYS[10]), found(1, "2 ..", "1")]),
    ("offsets", "high-watermark-back", [*OFFSETS, offsets("hw", 6, 4.0)]),
    ("offsets", "high-watermark-back", [*OFFSETS, offsets("hw", 6, 4.0, epoch=2)]),
    ("offsets", "last-stable-back", [*OFFSETS, offsets("lso", 4, 4.0)]),
    ("offsets", "log-start-back", [*OFFSETS, offsets("start", 0, 4.0)]),
    ("churn", "earlier-life", [*CHURN, event("read", life=2, p=0, o=0, v="1 0")]),
    ("churn", "moved", [*CHURN, event("read", life=1, p=0, o=3, v="1 0")]),
    ("java", "lost", without(JAVA, JAVA[3])),
    ("java", "duplicated", [*JAVA, found(2, "1")]),
    ("java", "reordered", [*JAVA[:2], found(0, "1"), found(1, "0"), *end(0)]),
    ("java", "moved", [*JAVA[:2], found(0, "0"), found(2, "1"), *end(0)]),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "kind", "events"), KNOWN_BAD)
def test_each_anomaly_is_found(subject: str, kind: str, events: list[Event]) -> None:
    assert kind in CHECKERS[subject](subject, events).kinds()


def test_an_acknowledgement_below_the_deleted_records_is_not_missed() -> None:
    events = [SENT, run("acked", 0, 10, 0), final(4, 6, 4), *end(0), *TRIMMED]
    assert CHECKERS["trim"]("trim", events).anomalies == []


def test_a_commit_that_was_under_way_explains_a_lower_offset() -> None:
    events = [*GROUPS, commit(5, 4.5, "unknown"), fetched(5, 5.0)]
    assert CHECKERS["groups"]("groups", events).anomalies == []


def test_write_cycles_are_counted_and_allowed() -> None:
    """Kafka does not isolate the writes of transactions from each other."""
    events = [
        txn("a", ops=[["a", 0, "a.0"], ["a", 1, "a.1"]]),
        txn("b", ops=[["a", 0, "b.0"], ["a", 1, "b.1"]]),
        found(0, "a.0"), found(1, "b.0"), found(0, "b.1", partition=1),
        found(1, "a.1", partition=1), *end(0, 1),
    ]  # fmt: skip
    verdict = CHECKERS["lists"]("lists", events)
    assert verdict.anomalies == []
    assert verdict.counts["G0 (allowed)"] == 1


def test_cycles_of_a_graph() -> None:
    assert cycle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_a_history_is_checked_from_its_files(tmp_path: Path) -> None:
    """The last line of a process that was killed may be incomplete."""
    recorder = Recorder(tmp_path, "log", "writer-0")
    for one in LOG[:2]:
        recorder.note(one["e"], **{name: value for name, value in one.items() if name != "e"})
    recorder.close()
    with open(tmp_path / "log.writer-0.jsonl", "a") as out:
        out.write('{"e":"ack')
    found = check_directory(tmp_path)
    assert set(found) == {"log"}
    assert found["log"].kinds() == {"lost"}
