"""When a scheduled pipeline runs."""

from typing import Any

import msgspec

from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_operator.spark.runs import Run, which_run

HOUR = 3600.0
NOON = 1_794_916_800.0  # 2026-11-17T12:00:00Z
TWELVE, ONE, TWO = (f"2026-11-17T{hour}:00:00Z" for hour in (12, 13, 14))


def spec(**more: Any) -> SparkPipelineSpec:
    given = {"sources": [{"topics": ["a"]}], "sink": {"console": {}}, "mode": "availableNow"}
    return msgspec.convert({**given, **more}, SparkPipelineSpec)


HOURLY = spec(schedule="@hourly")


def test_without_a_schedule_there_is_one_run() -> None:
    assert which_run(spec(), NOON, "", NOON + 9 * HOUR, at_work=False) == Run("")


def test_the_first_run_is_after_the_creation() -> None:
    assert which_run(HOURLY, NOON, "", NOON + 60, at_work=False) == Run(None, ONE)
    assert which_run(HOURLY, NOON, "", NOON + HOUR, at_work=False) == Run(ONE, TWO)


def test_a_run_that_is_at_work_is_not_disturbed_and_the_missed_one_follows_it() -> None:
    assert which_run(HOURLY, NOON, ONE, NOON + 1.5 * HOUR, at_work=False).name == ONE
    assert which_run(HOURLY, NOON, ONE, NOON + 2.5 * HOUR, at_work=True).name == ONE
    assert which_run(HOURLY, NOON, ONE, NOON + 2.5 * HOUR, at_work=False).name == TWO


def test_many_missed_runs_are_one() -> None:
    """A run reads a topic to its end, so seven more runs would find nothing."""
    found = which_run(HOURLY, NOON, ONE, NOON + 8.2 * HOUR, at_work=False)
    assert found == Run("2026-11-17T20:00:00Z", "2026-11-17T21:00:00Z")


def test_a_new_pipeline_with_the_name_of_an_old_one_begins_anew() -> None:
    assert which_run(HOURLY, NOON, "", NOON + 60, at_work=False).name is None
