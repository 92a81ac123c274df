"""Which run of a pipeline is due. Does no I/O.

A pipeline without a `schedule` has one run, whose name is empty. With a schedule, a run is named by
its scheduled time, "2026-11-17T02:00:00Z", and starts when that has passed and the previous run has
ended. If several runs were missed, one run makes up for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from odradek_api.base import instant
from odradek_api.cron import parse_schedule
from odradek_api.pipeline.spec import SparkPipelineSpec


@dataclass(frozen=True)
class Run:
    name: str | None  # None: none is due yet
    next: str = ""  # scheduled time of the following run


def which_run(
    spec: SparkPipelineSpec, created_s: float, last: str, now_s: float, *, at_work: bool
) -> Run:
    """`last`: the last run that was started, or empty; `at_work`: it has not ended yet."""
    if spec.schedule is None:
        return Run("")
    schedule = parse_schedule(spec.schedule)
    following = schedule.next_after(now_s)
    after_s = max(created_s, _seconds(last) if last else created_s)
    due = None if at_work else schedule.last_until(now_s, after_s)
    name = instant(due) if due is not None else last
    return Run(name or None, instant(following) if following is not None else "")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
