"""When a log goes on in a new segment."""

import zlib

from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
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
    """Whether batches of this size, last offset and timestamp must not go into `segment`."""
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if segment.size == 0:
        return False
    if segment.size + size > config.segment_bytes:
        return True
    roll_ms = config.segment_ms
    if config.cleanup_compact:
        # The active segment is not compacted, so it must not stay active for longer.
        roll_ms = min(roll_ms, config.max_compaction_lag_ms)
    if config.segment_jitter_ms:
        roll_ms -= jitter_ms(topic_partition, segment.base_offset, config)
    if segment.waited_for_roll(timestamp, now_ms) > roll_ms:
        return True
    return segment.bytes_since_index > config.index_interval_bytes and segment.index_full(
        config.segment_index_bytes
    )


def jitter_ms(topic_partition: TopicPartition, base_offset: Offset, config: LogConfig) -> int:
    """Keeps many partitions from rolling at once; the same at each look at a segment."""
    jitter = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{topic_partition}@{base_offset}".encode()) % max(jitter, 1)
