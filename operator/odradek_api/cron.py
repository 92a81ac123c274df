"""Schedules of pipelines and rebalances: cron's five fields, in UTC, as in a CronJob.

    "*/15 2-4 * * MON-FRI"      minute, hour, day of month, month, day of week (0 and 7: Sunday)
    "@hourly" "@daily" "@weekly" "@monthly" "@yearly"

If both days are restricted, either of them is enough, as in cron. The time is always an argument.

The fields are parsed and searched by cronsim: it follows Debian's cron, is maintained, typed and
has no dependencies, so it adds 14 kB to Spark's image. croniter needs python-dateutil, and its
author declared it abandoned in 2024. cronsim knows no nicknames and no "?", and accepts seconds as
a sixth field; that is handled here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

NICKNAMES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
             "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
             "@annually": "0 0 1 1 *"}  # fmt: skip
FIELDS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleError(ValueError):
    """Why a text is not a cron schedule, in a sentence."""


@dataclass(frozen=True)
class Schedule:
    expression: str  # five fields, checked

    def next_after(self, at_s: float) -> float | None:
        """The first instant later than `at_s`; None if there is none within 50 years."""
        found = next(CronSim(self.expression, _whole(at_s)), None)
        return None if found is None else found.timestamp()

    def last_until(self, at_s: float, after_s: float) -> float | None:
        """The last instant not later than `at_s`; None if it is not later than `after_s`."""
        begin = _whole(at_s) + timedelta(seconds=1)
        found = next(CronSim(self.expression, begin, reverse=True), None)
        return None if found is None or found.timestamp() <= after_s else found.timestamp()


def parse_schedule(text: str) -> Schedule:
    fields = NICKNAMES.get(text.strip().lower(), text).replace("?", "*").split()
    if len(fields) != FIELDS:
        raise ScheduleError(
            'a schedule has five fields, minute hour day month weekday: "0 2 * * *" is 02:00 UTC'
        )
    schedule = Schedule(" ".join(fields))
    try:
        never = next(CronSim(schedule.expression, EPOCH), None) is None
    except CronSimError as error:
        raise ScheduleError(f"{text!r} is not a cron schedule: {error}") from None
    if never:
        raise ScheduleError(f"{text!r} never comes")
    return schedule


def _whole(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s // 1, UTC)
