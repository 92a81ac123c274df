"""Which segments are dirty, which are not cleaned yet, and which are cleaned together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.log.compaction import CONFIG, CompactedLog
from broker_tests.log.support import NOW_MS
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.cleanable import Cleanable, Source, find_cleanable, group_sources
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX
from odradek_broker.model.log_config import LogConfig


def segments_of_one(*minutes: int) -> CompactedLog:
    """A log with a segment per record, written so many minutes after the start."""
    log = CompactedLog(SimDisk())
    for at in minutes:
        log.clock.advance(NOW_MS + at * 60_000 - log.clock.now_ms())
        log.write([("k", "v")])
        log.roll()
    return log


def look(log: CompactedLog, **changes: float) -> Cleanable:
    log.log.update_config(replace(CONFIG, **changes))  # type: ignore[arg-type]
    return find_cleanable(log.log, log.clock.now_ms())


def test_all_but_the_active_segment_is_cleanable() -> None:
    log = segments_of_one(0, 0, 0)
    log.write([("k", "v")])
    found = look(log)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 3)
    assert found.cleanable_bytes == sum(s.size for s in log.log.segments[:3])
    assert (found.clean_bytes, found.ratio, found.is_due) == (0, 1.0, True)


def test_an_active_segment_alone_is_never_cleaned() -> None:
    log = CompactedLog(SimDisk())
    log.write([("k", "v")])
    assert not look(log).is_due


def test_a_cleaned_part_counts_as_clean() -> None:
    log = segments_of_one(0, 0, 0, 0)
    log.log.cleaned_offset = 3
    found = look(log, min_cleanable_dirty_ratio=0.2)
    assert found.first_dirty_offset == 3
    assert found.ratio == pytest.approx(0.25)
    assert found.is_due
    assert not look(log, min_cleanable_dirty_ratio=0.25).is_due  # it must be exceeded


def test_open_transactions_are_not_cleaned() -> None:
    """Nor is the rest of the segment in which one begins."""
    log = segments_of_one(0, 0)
    log.write([("k", "v")])
    log.write([("k", "v")], producer=11)
    log.roll()
    log.write([("k", "v")])
    log.roll()
    assert log.log.last_stable_offset == 3
    assert look(log).first_uncleanable_offset == 2


def test_nothing_past_the_high_watermark_is_cleaned() -> None:
    log = segments_of_one(0, 0, 0)
    log.log.high_watermark = 1
    assert look(log).first_uncleanable_offset == 1


def test_young_segments_wait_for_min_compaction_lag() -> None:
    log = segments_of_one(0, 5, 9, 10)
    assert look(log, min_compaction_lag_ms=60_000).first_uncleanable_offset == 3
    assert look(log, min_compaction_lag_ms=60_001).first_uncleanable_offset == 2
    assert look(log, min_compaction_lag_ms=10 * 60_000).first_uncleanable_offset == 1
    assert look(log, min_compaction_lag_ms=11 * 60_000).first_uncleanable_offset == 0
    assert not look(log, min_compaction_lag_ms=11 * 60_000).is_due


def test_max_compaction_lag_makes_a_log_due_that_is_not_dirty_enough() -> None:
    log = segments_of_one(0, 5, 10)
    log.log.cleaned_offset = 1
    not_yet = look(log, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5 * 60_000)
    assert (not_yet.compaction_delay_ms, not_yet.is_due) == (0, False)
    overdue = look(log, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=3 * 60_000)
    assert (overdue.compaction_delay_ms, overdue.is_due) == (2 * 60_000, True)


def test_max_compaction_lag_rolls_the_active_segment() -> None:
    log = CompactedLog(SimDisk(), LogConfig(cleanup_compact=True, max_compaction_lag_ms=1000))
    log.write([("k", "v")])
    log.clock.advance(1001)
    log.write([("k", "v")])
    assert len(log.log.segments) == 2


def test_a_checkpoint_before_the_log_start_or_past_the_log_end_is_ignored() -> None:
    log = segments_of_one(0, 0, 0, 0)
    log.log.cleaned_offset = 1
    log.log.advance_log_start_offset(2)
    assert look(log).first_dirty_offset == 2
    log.log.cleaned_offset = 100
    assert look(log).first_dirty_offset == 2


def test_truncation_makes_later_writes_dirty() -> None:
    log = segments_of_one(0, 0, 0, 0)
    log.clean()
    assert log.log.cleaned_offset == 4
    log.log.truncate_to(2)
    assert log.log.cleaned_offset == 2
    log.log_end = 2
    log.reopen()
    assert log.log.cleaned_offset == 2


# Grouping


def source(base: int, size: int = 10, index: int = 0, end: int | None = None) -> Source:
    return Source(None, base, base + 1 if end is None else end, size, index, index)  # type: ignore[arg-type]


def sizes(groups: list[list[Source]]) -> list[list[int]]:
    return [[member.size for member in group] for group in groups]


def test_neighbours_that_fit_are_put_together() -> None:
    sources = [source(n, size) for n, size in enumerate((40, 30, 50, 10, 45))]
    groups = group_sources(sources, LogConfig(segment_bytes=100))
    assert sizes(groups) == [[40, 30], [50, 10], [45]]


def test_indexes_must_fit_too() -> None:
    sources = [source(n, 1, index=40) for n in range(5)]
    groups = group_sources(sources, LogConfig(segment_index_bytes=100))
    assert [len(group) for group in groups] == [2, 2, 1]


def test_offsets_must_fit_into_31_bits_unless_there_are_none() -> None:
    far = RELATIVE_OFFSET_MAX
    assert len(group_sources([source(0), source(far, end=far + 1)], LogConfig())) == 1
    assert len(group_sources([source(0), source(far + 1, end=far + 2)], LogConfig())) == 2
    assert len(group_sources([source(0), source(far + 1, 0, end=far + 2)], LogConfig())) == 1


@given(st.lists(st.integers(0, 120)), st.integers(1, 100))
def test_groups_are_all_segments_in_order_and_none_is_too_large(
    given_sizes: list[int], limit: int
) -> None:
    sources = [source(n, size) for n, size in enumerate(given_sizes)]
    groups = group_sources(sources, LogConfig(segment_bytes=limit))
    assert [member for group in groups for member in group] == sources
    for group in groups:
        assert len(group) == 1 or sum(member.size for member in group) <= limit
