"""Which segments retention deletes: rules without I/O, in one table."""

import operator
from functools import partial

import pytest

from odradek_broker.log.retention import SegmentAge, deletable_count
from odradek_broker.model.log_config import LogConfig

NOW = 100_000


def ages(*segments: tuple[int, int, int]) -> list[SegmentAge]:
    """(end offset, size, age in ms)"""
    return [SegmentAge(end, size, partial(operator.sub, NOW, age)) for end, size, age in segments]


THREE = ages((10, 100, 5000), (20, 100, 3000), (30, 50, 10))


@pytest.mark.parametrize(
    ("config", "start", "high_watermark", "expected"),
    [
        (LogConfig(retention_ms=5000), 0, 30, 0),  # exactly as old as the limit
        (LogConfig(retention_ms=4999), 0, 30, 1),
        (LogConfig(retention_ms=1000), 0, 30, 2),
        (LogConfig(retention_ms=1), 0, 30, 3),
        (LogConfig(retention_ms=1), 0, 29, 2),  # the last one is not committed
        (LogConfig(retention_ms=1), 0, 5, 0),
        (LogConfig(retention_ms=-1), 0, 30, 0),
        (LogConfig(retention_ms=-1, retention_bytes=150), 0, 30, 1),
        (LogConfig(retention_ms=-1, retention_bytes=151), 0, 30, 0),
        (LogConfig(retention_ms=-1, retention_bytes=50), 0, 30, 2),
        (LogConfig(retention_ms=-1, retention_bytes=0), 0, 30, 3),
        (LogConfig(retention_ms=4000, retention_bytes=60), 0, 30, 1),
        (LogConfig(retention_ms=-1), 9, 30, 0),
        (LogConfig(retention_ms=-1), 10, 30, 1),
        (LogConfig(retention_ms=-1), 30, 30, 2),  # the active one stays, empty of readable records
        (LogConfig(retention_ms=1, cleanup_delete=False, cleanup_compact=True), 10, 30, 1),
    ],
)
def test_how_many_of_the_oldest_go(
    config: LogConfig, start: int, high_watermark: int, expected: int
) -> None:
    count, _ = deletable_count(
        THREE, config, log_start_offset=start, high_watermark=high_watermark, now_ms=NOW
    )
    assert count == expected


def test_an_empty_active_segment_is_never_deleted() -> None:
    segments = ages((10, 100, 5000), (10, 0, 5000))
    count, reason = deletable_count(
        segments, LogConfig(retention_ms=1), log_start_offset=0, high_watermark=10, now_ms=NOW
    )
    assert (count, reason) == (1, "retention.ms")


def test_timestamps_are_not_asked_for_without_need() -> None:
    def explode() -> int:
        raise AssertionError("read the index for nothing")

    segments = [SegmentAge(10, 100, explode)]
    deletable_count(
        segments, LogConfig(retention_ms=-1), log_start_offset=0, high_watermark=10, now_ms=NOW
    )
