"""The checker finds anomalies: one planted bad history for each, and good ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek_testkit.checker import check, kinds, report
from odradek_testkit.history import FINAL, History, Read


def good(records: int = 10, partitions: int = 2) -> History:
    """Two producers, all records acknowledged, each partition tailed and then read again."""
    history = History()
    ends = [0] * partitions
    for i in range(records):
        partition = i % partitions
        number = history.send(producer=i // partitions % 2, partition=partition)
        history.ack(number, ends[partition])
        history.read("tail", partition, ends[partition], number)
        ends[partition] += 1
    for read in list(history.reads):
        history.reads.append(read._replace(reader=FINAL))
    return history


def final_of(history: History, number: int) -> Read:
    return next(r for r in history.reads if r.reader == FINAL and r.number == number)


def replace_final(history: History, number: int, **changed: Any) -> None:
    read = final_of(history, number)
    history.reads[history.reads.index(read)] = read._replace(**changed)


def test_a_good_history() -> None:
    assert check(good()) == []
    assert check(History()) == []


def test_a_write_without_an_answer_may_be_there_or_not() -> None:
    history = good()
    there, nowhere = history.send(0, 0), history.send(0, 1)
    history.unknown(there, "_MSG_TIMED_OUT")
    history.unknown(nowhere, "_MSG_TIMED_OUT")
    history.read(FINAL, 0, 5, there)
    assert check(history) == []


def test_control_records_leave_gaps() -> None:
    history = good()
    number = history.send(0, 0)
    history.ack(number, 9)  # 5 to 8 are markers that clients never see
    history.read(FINAL, 0, 9, number)
    assert check(history) == []


def test_an_ack_may_leave_the_offset_open() -> None:
    history = good()
    number = history.send(0, 0)
    history.ack(number, -1)
    history.read(FINAL, 0, 5, number)
    assert check(history) == []


def lost_ack(history: History) -> None:
    for reader in ("tail", FINAL):
        history.reads = [r for r in history.reads if (r.reader, r.number) != (reader, 3)]


def lost_after_a_reader_saw_it(history: History) -> None:
    number = history.send(0, 0)  # the producer got no acknowledgement
    history.read("tail", 0, 5, number)
    replacement = history.send(1, 0)
    history.read(FINAL, 0, 6, replacement)


def acked_beyond_the_end(history: History) -> None:
    history.ack(history.send(0, 0), 5)


def written_twice(history: History) -> None:
    history.read(FINAL, 0, 5, final_of(history, 9).number)


def two_at_one_offset(history: History) -> None:
    number = history.send(0, 0)
    history.ack(number, 4)
    history.read(FINAL, 0, 5, number)


def acked_elsewhere(history: History) -> None:
    number = history.send(0, 0)
    history.ack(number, 7)
    history.read(FINAL, 0, 5, number)


def replaced_after_a_read(history: History) -> None:
    seen, instead = history.send(0, 0), history.send(1, 0)
    history.read("tail", 0, 5, seen)
    history.read(FINAL, 0, 5, instead)
    history.read(FINAL, 0, 6, seen)


def swapped(history: History) -> None:
    first, second = history.send(0, 0), history.send(0, 0)
    history.read(FINAL, 0, 5, second)
    history.read(FINAL, 0, 6, first)


def went_back(history: History) -> None:
    history.read("tail", 0, 2, 5)


def never_sent(history: History) -> None:
    history.read(FINAL, 0, 5, 999)


def in_another_partition(history: History) -> None:
    number = history.send(0, 1)
    history.read(FINAL, 0, 5, number)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lost_ack, "lost-write"),
        (lost_after_a_reader_saw_it, "lost-write"),
        (acked_beyond_the_end, "unseen"),
        (written_twice, "duplicate"),
        (two_at_one_offset, "inconsistent-offsets"),
        (acked_elsewhere, "inconsistent-offsets"),
        (replaced_after_a_read, "inconsistent-offsets"),
        (swapped, "reordered"),
        (went_back, "nonmonotonic-poll"),
        (never_sent, "phantom"),
        (in_another_partition, "phantom"),
    ],
)
def test_a_planted_anomaly_is_named_and_alone(plant, kind) -> None:  # type: ignore[no-untyped-def]
    history = good()
    plant(history)
    found = check(history)
    assert kinds(found) == {kind}, report(found)
    assert kind in report(found)


def test_without_idempotence_a_retry_may_write_twice() -> None:
    history = good()
    written_twice(history)
    assert check(history, idempotent=False) == []


def test_a_history_can_be_kept(tmp_path: Path) -> None:
    good(4).save(tmp_path / "history.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["write"] * 4 + ["read"] * 8
