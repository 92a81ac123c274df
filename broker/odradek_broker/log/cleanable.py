"""Which part of a log is dirty, how dirty it is, and which segments are cleaned together. No I/O
except for a look into the time index where a topic sets a lag.

    log start        first dirty offset        first uncleanable offset        log end
        │  clean: compacted   │  cleanable: dirty       │  not yet              │
        │  before             │                         │                       │

Not yet: the active segment, everything from the last stable offset on, and segments with a record
younger than `min.compaction.lag.ms`. The first dirty offset is in the cleaner checkpoint.
A log is cleaned when the dirty share of the first two parts exceeds
`min.cleanable.dirty.ratio`, or when a dirty segment is older than `max.compaction.lag.ms`.
"""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from odradek_broker.log.log import Log
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from odradek_broker.model.log_config import LONG_MAX, LogConfig
from odradek_protocol.ids import Offset

logger = logging.getLogger(__name__)


class Cleanable(NamedTuple):
    """The part of a log that can be cleaned. The offsets are those of the picture above."""

    log: Log
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset  # a segment begins here
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int  # by how much max.compaction.lag.ms is exceeded; 0: it is not

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.cleanable_bytes == 0:
            return False
        return (
            self.compaction_delay_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio
        )


def find_cleanable(log: Log, now_ms: int) -> Cleanable:
    """Look at a compacted log, in the loop's thread; reads an index only if a lag is set."""
    first_dirty = _first_dirty_offset(log)
    segments = log.segments
    dirty = _segments_from(segments, first_dirty)[:-1]  # without the active one
    uncleanable = max(first_dirty, _first_uncleanable_offset(log, dirty, now_ms))
    # Segments are cleaned as a whole or not at all.
    border = _segments_from(segments, uncleanable)[0].base_offset
    return Cleanable(
        log,
        first_dirty,
        border,
        sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < border),
        _compaction_delay_ms(dirty, log.config, now_ms),
    )


def _first_dirty_offset(log: Log) -> Offset:
    start, cleaned = log.log_start_offset, log.cleaned_offset
    if cleaned > log.log_end_offset:
        # The end of the log was lost. Which part is clean is unknown.
        logger.warning(
            "%s was cleaned up to offset %d but ends before it: cleaning all of it again",
            log,
            cleaned,
        )
        return start
    return max(start, cleaned)


def _first_uncleanable_offset(log: Log, dirty: Sequence[LogSegment], now_ms: int) -> Offset:
    limits = [log.active.base_offset, log.last_stable_offset]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (s.base_offset for s in dirty if s.max_timestamp.timestamp > now_ms - lag_ms)
        limits += [next(young, log.active.base_offset)]
    return min(limits)


def _compaction_delay_ms(dirty: Sequence[LogSegment], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0
    timestamps = [t for t in (segment.first_batch_timestamp() for segment in dirty) if t > 0]
    return max(0, now_ms - config.max_compaction_lag_ms - min(timestamps, default=now_ms))


def _segments_from(segments: Sequence[LogSegment], offset: Offset) -> Sequence[LogSegment]:
    """The segment with this offset and all after it; at least one."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return segments[max(0, at) :]


class Source(NamedTuple):
    """A sealed segment as the cleaner's thread sees it; none of this changes."""

    segment: LogSegment
    base_offset: Offset
    end_offset: Offset  # where the next segment begins
    size: int
    offset_index_bytes: int
    time_index_bytes: int


def group_sources(sources: Sequence[Source], config: LogConfig) -> list[list[Source]]:
    """Groups of neighbours that fit into one segment by bytes, index bytes and offsets.

    Example: with segment.bytes=100 the sizes 40, 30, 50, 10, 45 make [40, 30], [50, 10], [45].
    """
    groups: list[list[Source]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, config):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(group: Sequence[Source], source: Source, config: LogConfig) -> bool:
    members = [*group, source]
    # An empty segment has no offset that could be too far from the group's base offset.
    near = source.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    return (
        sum(member.size for member in members) <= config.segment_bytes
        and sum(member.offset_index_bytes for member in members) <= config.segment_index_bytes
        and sum(member.time_index_bytes for member in members) <= config.segment_index_bytes
        and (near or source.size == 0)
    )
