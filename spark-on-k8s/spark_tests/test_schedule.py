"""Cron's fields: which instants they name, and what is refused."""

from datetime import UTC, datetime

import pytest

from odradek_api.cron import ScheduleError, parse_schedule


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "now", "following"),
    [
        ("*/15 * * * *", "2026-11-17T01:14:59", "2026-11-17T01:15"),
        ("*/15 * * * *", "2026-11-17T01:15:00", "2026-11-17T01:30"),
        ("5/20 3 * * *", "2026-11-17T03:10", "2026-11-17T03:25"),
        ("0 2 * * *", "2026-12-31T02:00", "2027-01-01T02:00"),
        ("30 6 * * MON-FRI", "2026-11-20T07:00", "2026-11-23T06:30"),
        ("0 0 * * 7", "2026-11-17T00:00", "2026-11-22T00:00"),
        ("0 0 13 * fri", "2026-11-14T00:00", "2026-11-20T00:00"),  # either day
        ("0 0 */10 * mon", "2026-11-01T00:00", "2026-12-21T00:00"),  # * begins: both days
        ("0 0 29 2 *", "2026-11-17T00:00", "2028-02-29T00:00"),
        ("0 12 1 jan,jul ?", "2026-11-17T00:00", "2027-01-01T12:00"),
        ("@hourly", "2026-11-17T01:14", "2026-11-17T02:00"),
        ("@weekly", "2026-11-17T01:14", "2026-11-22T00:00"),
    ],
)
def test_the_next_and_the_last_time(schedule: str, now: str, following: str) -> None:
    made = parse_schedule(schedule)
    due = made.next_after(at(now))
    assert due == at(following)
    assert made.last_until(due, at(now)) == due
    assert made.last_until(due + 59, at(now)) == due
    assert made.last_until(due - 1, at(now)) is None, "nothing between now and then"
    assert made.last_until(due + 59, due) is None, "what was done is not due again"


def test_missed_runs_are_due_once() -> None:
    made = parse_schedule("0 * * * *")
    due = made.last_until(at("2026-11-20T10:30"), at("2026-11-17T00:00"))
    assert due == at("2026-11-20T10:00")


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("every day", "five fields"),
        ("60 * * * *", "'60 . . . .' is not a cron schedule: Bad minute"),
        ("* * 0 * *", "Bad day-of-month"),
        ("*/0 * * * *", "Bad minute"),
        ("5-3 * * * *", "Bad minute"),
        ("* * * foo *", "Bad month"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("*-3 * * * *", "Bad minute"),
        ("1,,2 * * * *", "Bad minute"),
        ("0 0 * * 8", "Bad day-of-week"),
        ("0 0 2 * * *", "five fields"),  # seconds,
    ],
)
def test_an_invalid_schedule_is_an_error(schedule: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        parse_schedule(schedule)
