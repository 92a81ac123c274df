"""When a log continues in a new segment: by size, age, offsets or full indexes.

Called by `Appender` for each append. Example with segment.bytes=1000: a segment of 900 bytes takes
a batch of 100 bytes; for a batch of 101 bytes the log rolls.
"""

import zlib

from odradek_broker.log.offset_index import OffsetIndex
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from odradek_broker.log.time_index import TimeIndex
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import Offset, TopicPartition


def must_roll(
    segment: LogSegment,
    config: LogConfig,
    topic_partition: TopicPartition,
    *,
    size: int,
    last_offset: Offset,
    timestamp: int,
    now_ms: int,
) -> bool:
    """Whether batches with this size, last offset and timestamp need a new segment."""
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if segment.size == 0:
        return False
    if segment.size + size > config.segment_bytes:
        return True
    roll_ms = config.segment_ms
    if config.cleanup_compact:
        # The active segment is never compacted, so it must not stay active longer than that.
        roll_ms = min(roll_ms, config.max_compaction_lag_ms)
    if config.segment_jitter_ms:
        roll_ms -= jitter_ms(topic_partition, segment.base_offset, config)
    if _age_ms(segment, timestamp, now_ms) > roll_ms:
        return True
    return segment.bytes_since_index > config.index_interval_bytes and _index_full(
        segment, config.segment_index_bytes
    )


def _age_ms(segment: LogSegment, max_timestamp: int, now_ms: int) -> int:
    """The age of the segment, by the timestamp of its first batch, or by its creation time."""
    first = segment.first_batch_timestamp()
    return max_timestamp - first if first >= 0 else now_ms - segment.created_ms


def _index_full(segment: LogSegment, index_bytes_max: int) -> bool:
    """Kafka's limits: one slot of the time index is kept for the entry that sealing adds."""
    offset_entries = index_bytes_max // OffsetIndex.ENTRY.size
    time_entries = index_bytes_max // TimeIndex.ENTRY.size - 1
    return len(segment.offset_index) >= offset_entries or len(segment.time_index) >= time_entries


def jitter_ms(topic_partition: TopicPartition, base_offset: Offset, config: LogConfig) -> int:
    """Keeps many partitions from rolling at once; the same value at each call for a segment."""
    jitter = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{topic_partition}@{base_offset}".encode()) % max(jitter, 1)
