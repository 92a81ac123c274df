"""Look-ups in a log: the bytes of a fetch, offsets by timestamp, aborted transactions.

Used by `Log`, in the event loop's thread; it changes nothing. A fetch reads no file at all near the
end of the log (`recent.py`), and only batch headers far from it. Example, a log of two segments
with the base offsets 0 and 100, and batches of 10 records: a read of offset 104 finds the segment
100, the batch that begins at its byte 0, and offers the file from there on.
"""

from bisect import bisect_right
from collections.abc import Sequence

from odradek_broker.log.lookup import find_aborted, find_by_timestamp, find_max_timestamp
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.state import LogState
from odradek_broker.log.types import AbortedTransaction, FileRange, TimestampOffset
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import BatchHeader
from odradek_protocol.records.records import Record


class LogReader:
    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def read(
        self, offset: Offset, max_bytes: int, upper_bound: Offset, min_one_batch: bool
    ) -> tuple[FileRange | None, Offset]:
        """See `Log.read`."""
        state = self._state
        if state.log_dir.failure is not None:
            state.log_dir.check()
        if not state.log_start_offset <= offset <= state.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{state.topic_partition}: offset {offset} is not in "
                f"[{state.log_start_offset}, {state.log_end_offset}]",
            )
        if upper_bound > state.written_offset:
            upper_bound = state.written_offset
        if offset >= upper_bound:
            return None, offset
        try:
            return find_range(
                state.segments, state.written_offset, offset, max_bytes, upper_bound, min_one_batch
            )
        except OSError as error:
            raise state.log_dir.fail(error) from error

    def aborted_in(
        self, records: FileRange, first_offset: Offset, from_offset: Offset, to_offset: Offset
    ) -> list[AbortedTransaction]:
        """See `Log.aborted_in`."""
        state = self._state
        with state.using_files():
            segments = state.segments[segment_index(state.segments, first_offset) :]
            end = segments[0].offset_bound(records.position + records.length)
            if end is None and len(segments) > 1:
                end = segments[1].base_offset
            bound = to_offset if end is None else min(end, to_offset)
            return find_aborted(segments, from_offset, bound)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See `Log.offset_for_timestamp`."""
        state = self._state
        with state.using_files():
            found = find_by_timestamp(
                state.segments, timestamp, state.log_start_offset, state.written_offset
            )
        return _timestamp_offset(found)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """See `Log.max_timestamp_offset`."""
        state = self._state
        with state.using_files():
            found = find_max_timestamp(state.segments, state.log_start_offset, state.written_offset)
        return _timestamp_offset(found)


def _timestamp_offset(found: tuple[Record, BatchHeader] | None) -> TimestampOffset | None:
    if found is None:
        return None
    record, header = found
    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)


def segment_index(segments: Sequence[LogSegment], offset: Offset) -> int:
    """Which segment holds this offset, by the base offsets alone; mostly it is the last one."""
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
    """See `Log.read`. The caller has checked `offset < upper_bound <= written_offset`."""
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
