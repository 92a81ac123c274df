"""Find records by timestamp, and the aborted transactions of a range of offsets.

Used by `reading.py`. Example: records with the timestamps 10, 30, 20 at the offsets 0, 1, 2. The
lookup of 15 finds offset 1: the first record, in log order, with at least this timestamp.
"""

from collections.abc import Sequence

from odradek_broker.log.segment import LogSegment
from odradek_broker.log.time_index import NO_TIMESTAMP
from odradek_broker.log.types import AbortedTransaction
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import BatchHeader
from odradek_protocol.records.records import Record, read_records


def find_by_timestamp(
    segments: Sequence[LogSegment], timestamp: int, start_offset: Offset, end_offset: Offset
) -> tuple[Record, BatchHeader] | None:
    """The first record in [start, end) with at least this timestamp."""
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp.timestamp < timestamp:
            continue
        for position, header in segment.headers(segment.position_before_timestamp(timestamp)):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in read_records(segment.file().pread(header.size, position)):
                if record.timestamp >= timestamp and start_offset <= record.offset < end_offset:
                    return record, header
    return None


def find_max_timestamp(
    segments: Sequence[LogSegment], start_offset: Offset, end_offset: Offset
) -> tuple[Record, BatchHeader] | None:
    """The first record in [start, end) with the largest timestamp."""
    youngest = None
    for segment in segments:
        if segment.size == 0:
            continue
        timestamp, offset = segment.max_timestamp
        if offset < start_offset:  # the record with it was deleted
            later = (h.max_timestamp for _, h in segment.headers() if h.last_offset >= start_offset)
            timestamp = max(later, default=NO_TIMESTAMP)
        if youngest is None or timestamp > youngest[0]:
            youngest = timestamp, segment
    if youngest is None:
        return None
    return find_by_timestamp([youngest[1]], youngest[0], start_offset, end_offset)


def find_aborted(
    segments: Sequence[LogSegment], from_offset: Offset, to_offset: Offset
) -> list[AbortedTransaction]:
    """Aborted transactions that have records in [from, to), by the offset of their marker."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        if not segment.has_aborted_transactions:
            continue
        for aborted in segment.txn_index.since(from_offset):
            if aborted.first_offset < to_offset:
                found.append(AbortedTransaction(aborted.producer_id, aborted.first_offset))
            if aborted.last_stable_offset >= to_offset:
                return found
    return found
