"""The expected counts of the demonstration, and how a difference is reported."""

from collections import Counter

import pytest

from odradek_cli import spark_guest
from odradek_cli.demo_clients import ClientsSeen
from odradek_cli.window_counts import difference


def test_the_records_of_the_reader_by_window() -> None:
    """By the records' own times; a record that was read twice is expected twice."""
    seen = ClientsSeen(stamps=[(3, 20_000), (23, 29_999), (3, 20_000), (3, 30_000), (4, 20_000)])
    assert spark_guest.expected(seen) == {(20, "c3"): 3, (30, "c3"): 1, (20, "c4"): 1}


def test_windows_that_differ_are_named() -> None:
    wanted = Counter({(10, "a"): 5, (10, "b"): 5, (20, "a"): 5})
    assert difference(wanted.copy(), wanted) == ""
    for found, said in (
        ({(10, "a"): 5, (20, "a"): 5}, "1 windows differ: the first, of b at 10, has 0 instead"),
        ({(10, "a"): 6, (10, "b"): 4, (20, "a"): 5}, "2 windows differ: the first, of a at 10"),
        ({**wanted, (30, "a"): 1}, "1 windows differ: the first, of a at 30, has 1 instead of 0"),
    ):
        assert said in difference(Counter(found), wanted)


def test_a_machine_without_room_or_without_spark_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek_operator.local.pipeline_processes.spark_missing", lambda: "")
    assert spark_guest.spark_absent(8 << 30) == ""
    assert "needs 2 GB of memory, and 512 MB are free" in spark_guest.spark_absent(512 << 20)
    monkeypatch.setattr(
        "odradek_operator.local.pipeline_processes.spark_missing", lambda: "`make spark`"
    )
    assert spark_guest.spark_absent(8 << 30) == "`make spark`"
