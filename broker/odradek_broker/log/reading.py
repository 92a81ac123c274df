"""Find the bytes of a log that answer a fetch. Nothing is read but, far from the end, headers."""

from bisect import bisect_right
from collections.abc import Sequence

from odradek_broker.log.segment import LogSegment
from odradek_broker.log.types import FileRange
from odradek_protocol.ids import Offset


def segment_index(segments: Sequence[LogSegment], offset: Offset) -> int:
    """Which segment holds this offset, by the names alone; most ask for the last one."""
    last = len(segments) - 1
    if offset >= segments[last].base_offset:
        return last
    return max(0, bisect_right(segments, offset, key=base_offset) - 1)


def base_offset(segment: LogSegment) -> Offset:
    return segment.base_offset


def find_range(
    segments: Sequence[LogSegment],
    written_offset: Offset,
    offset: Offset,
    max_bytes: int,
    upper_bound: Offset,
    min_one_batch: bool,
) -> tuple[FileRange | None, Offset]:
    """See `Log.read`; `offset < upper_bound <= written_offset` holds here."""
    at = segment_index(segments, offset)
    found = segments[at].locate(offset)
    while found is None:  # the offset is in a gap at the end of a segment
        at += 1
        if at == len(segments):
            return None, offset
        found = segments[at].locate(offset)
    segment = segments[at]
    first_offset, start, first_size = found
    end = segment.written
    end_offset = written_offset if segment is segments[-1] else segments[at + 1].base_offset
    if upper_bound < end_offset:
        bound = segment.locate(upper_bound)
        if bound is not None:
            end = bound.position
    length = end - start
    if length > max_bytes:
        if max_bytes < first_size:
            length = first_size if min_one_batch else 0
        else:
            length = max_bytes
            if segment.recent is not None:
                length = segment.recent.last_boundary(start, start + max_bytes) - start
    if length <= 0:
        return None, offset
    return FileRange(segment.file(), start, length), first_offset
