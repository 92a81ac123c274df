"""How many segments retention deletes, by time, by size or by the log start. Does no I/O.

Segments are deleted from the oldest on, never past the high watermark: what is not committed must
not be deleted. If a rule selects all of them, the log rolls first, so that the active segment is
never deleted. Example with retention.bytes=250: of segments of 100 bytes each, 0, 100, 200 and 300,
only the first goes, because 300 bytes without it are still 250 or more. Called by `trimming.py`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import Offset


class SegmentAge(NamedTuple):
    """The properties of a segment that retention looks at."""

    end_offset: Offset  # the next segment's base offset, or the log end
    size: int
    largest_timestamp: Callable[[], int]  # called only for retention by time: it may read the index


def deletable_count(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> tuple[int, str]:
    """How many of the oldest segments to delete, and why (the rule that selects most)."""
    counts = [(_before_log_start(segments, log_start_offset), "they are before the log start")]
    if config.cleanup_delete:
        if config.retention_bytes >= 0:
            counts.append((_too_large(segments, config.retention_bytes), "retention.bytes"))
        if config.retention_ms >= 0:
            counts.append((_too_old(segments, config.retention_ms, now_ms), "retention.ms"))
    count, reason = max(counts, key=lambda entry: entry[0])
    committed = sum(1 for segment in segments if segment.end_offset <= high_watermark)
    if count == len(segments) and segments[-1].size == 0:
        count -= 1  # the active segment has nothing to delete
    return min(count, committed), reason


def _before_log_start(segments: Sequence[SegmentAge], log_start_offset: Offset) -> int:
    return sum(1 for segment in segments[:-1] if segment.end_offset <= log_start_offset)


def _too_large(segments: Sequence[SegmentAge], retention_bytes: int) -> int:
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _too_old(segments: Sequence[SegmentAge], retention_ms: int, now_ms: int) -> int:
    count = 0
    for segment in segments:
        if now_ms - segment.largest_timestamp() <= retention_ms:
            break
        count += 1
    return count
