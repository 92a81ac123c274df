"""When a pipeline with a `schedule` runs: cron's five fields, in UTC, as Kubernetes' CronJobs.

    "*/15 2-4 * * MON-FRI"      minute, hour, day of month, month, day of week (0 and 7: Sunday)
    "@hourly" "@daily" "@weekly" "@monthly" "@yearly"

If both days are restricted, either of them is enough, as in cron. Pure: the time is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

NICKNAMES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
             "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
             "@annually": "0 0 1 1 *"}  # fmt: skip
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12),
          ("day of week", 0, 7))  # fmt: skip
DAYS_MAX = 366 * 9  # 29 February may be eight years away


class ScheduleError(ValueError):
    """A sentence about what is not cron in it."""


@dataclass(frozen=True)
class Schedule:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either_day: bool  # both kinds of days are restricted

    def next_after(self, at_s: float) -> float | None:
        """The first instant later than `at_s`; None if there is none in nine years."""
        first = datetime.fromtimestamp(at_s, UTC)
        for n in range(DAYS_MAX):
            for one in self._instants(first.date() + timedelta(days=n)):
                if one.timestamp() > at_s:
                    return one.timestamp()
        return None

    def last_until(self, at_s: float, after_s: float) -> float | None:
        """The last instant not later than `at_s`; None if it is not later than `after_s`."""
        day = datetime.fromtimestamp(at_s, UTC).date()
        begin = datetime.fromtimestamp(after_s, UTC).date()
        while day >= begin:
            due = [one.timestamp() for one in self._instants(day) if one.timestamp() <= at_s]
            if due:
                return due[-1] if due[-1] > after_s else None
            day -= timedelta(days=1)
        return None

    def _instants(self, day: date) -> Iterator[datetime]:
        if not self._on(day):
            return
        for hour in self.hours:
            for minute in self.minutes:
                yield datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)

    def _on(self, day: date) -> bool:
        by_month = day.day in self.days
        by_week = day.isoweekday() % 7 in self.weekdays
        fits = (by_month or by_week) if self.either_day else (by_month and by_week)
        return day.month in self.months and fits


def parse_schedule(text: str) -> Schedule:
    words = NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) != len(FIELDS):
        raise ScheduleError(
            'has five fields, minute hour day month weekday: "0 2 * * *" is two o\'clock'
        )
    found = [_field(word, *field) for word, field in zip(words, FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = found
    made = Schedule(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(n % 7 for n in weekdays),
        either_day=words[2][0] not in "*?" and words[4][0] not in "*?",
    )
    if made.next_after(0.0) is None:
        raise ScheduleError(f"never comes: {text}")
    return made


def _field(text: str, name: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([*?]|\w+)(?:-(\w+))?(?:/([0-9]{1,3}))?", part)
        if match is None or (match[1] in "*?" and match[2]):
            raise ScheduleError(f"{part!r} is no {name}")
        if match[1] in "*?":
            first, last = low, high
        else:
            first = _number(match[1], name, low, high)
            last = _number(match[2], name, low, high) if match[2] else first
            if match[3] and not match[2]:
                last = high
        step = int(match[3] or 1)
        if step < 1 or last < first:
            raise ScheduleError(f"{part!r} is no {name}")
        found |= set(range(first, last + 1, step))
    return found


def _number(text: str, name: str, low: int, high: int) -> int:
    names = {"month": (MONTHS, 1), "day of week": (WEEKDAYS, 0)}.get(name, ((), 0))
    if text.upper() in names[0]:
        return names[0].index(text.upper()) + names[1]
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ScheduleError(f"{text!r} is no {name}: {low} to {high}")
    return int(text)
