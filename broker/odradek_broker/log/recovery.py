"""Recovery after a crash: keep the longest valid prefix, rebuild everything else from it.

A batch is valid if it is whole, its CRC matches and its offsets follow the batch before it.
The CRC does not cover the base offset, so a flipped bit there would move a record to another
offset; therefore offsets must follow without a gap, unless the log was ever compacted.

Only segments that reach past the recovery point are read. Their offset and time index are
rebuilt; the transaction index and the producer state follow in `producer_replay.py`.
"""

import logging
from typing import NamedTuple

from odradek_broker.log.batches import scan_batches
from odradek_broker.log.errors import CorruptLogError
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.old_formats import refuse_old_format
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from odradek_protocol.ids import Offset

logger = logging.getLogger(__name__)


class Recovered(NamedTuple):
    end_offset: Offset
    truncated_bytes: int


def recover_segment(
    segment: LogSegment, epochs: LeaderEpochs, index_interval: int, *, gaps_allowed: bool
) -> Recovered:
    """Truncate the segment after its last valid batch; rebuild its indexes and the epochs.

    LogDirConfigError, and nothing is truncated, if a record of an old format follows that batch.
    """
    segment.clear_indexes()
    expected = segment.base_offset
    valid = 0
    problem = ""
    try:
        for position, header, _ in scan_batches(segment.file(), segment.path(), 0, segment.size):
            if header.base_offset < expected or (
                header.base_offset > expected and not gaps_allowed
            ):
                problem = f"offset {header.base_offset} instead of {expected}"
                break
            if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                problem = f"offset {header.last_offset} does not belong to this segment"
                break
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            segment.index(
                header.last_offset, header.max_timestamp, position, header.size, index_interval
            )
            expected = header.next_offset
            valid = position + header.size
    except CorruptLogError as error:
        refuse_old_format(segment.file(), segment.path(), valid)
        problem = error.message or ""
    truncated = segment.size - valid
    if truncated:
        logger.warning(
            "%s: truncated %d bytes after offset %d: %s",
            segment.path(),
            truncated,
            expected,
            problem,
        )
        segment.cut(valid)
    if segment.sealed:
        segment.seal()
    return Recovered(expected, truncated)
