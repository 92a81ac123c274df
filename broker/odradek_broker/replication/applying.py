"""Carries out, on the log of a follower, what `partition/follower_state.py` decided.

In the event loop's thread, at once and in order. KafkaError (a LogDirError, if the disk is the
reason) when it cannot be done; the rest is left out then.
"""

import logging

from odradek_broker.log.copying import append_pieces
from odradek_broker.partition import follower_state
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_protocol.ids import BrokerId, Offset

logger = logging.getLogger(__name__)


def carry_out(
    partition: Partition,
    instructions: follower_state.Instructions,
    records: memoryview,
    partitions: PartitionService,
    now_ms: int,
) -> follower_state.LookUpOffsets | None:
    """Returns the instruction that needs a request to the leader, if any. `now_ms` is wall time."""
    log = partition.log
    for instruction in instructions:
        match instruction:
            case follower_state.Append():
                append_pieces(log, records)
                partition.load.replicated_in += len(records)
                partition.load.replications += 1
            case follower_state.MoveHighWatermark(high_watermark):
                log.high_watermark = high_watermark
                partitions.mark_dirty(partition)  # consumers may wait for it here
            case follower_state.MoveLogStart(log_start_offset):
                log.advance_log_start_offset(log_start_offset)
            case follower_state.Truncate(offset, below_high_watermark):
                _truncate(partition, offset, below_high_watermark)
            case follower_state.TruncateFully(offset):
                logger.warning(
                    "%s: the leader has none of its records; the log is emptied and starts at %d",
                    log,
                    offset,
                )
                log.truncate_fully_and_start_at(offset, now_ms)
            case follower_state.StartAt(offset):
                log.truncate_fully_and_start_at(offset, now_ms)
            case follower_state.LookUpOffsets():
                return instruction
    return None


def _truncate(partition: Partition, offset: Offset, below_high_watermark: bool) -> None:
    log = partition.log
    if below_high_watermark:
        logger.error(
            "%s: truncating to %d, below the high watermark %d: broker %d leads without "
            "records that were committed (an unclean election, or it lost its disk)",
            log.topic_partition,
            offset,
            log.high_watermark,
            BrokerId(partition.leader),
        )
    else:
        logger.info("%s: truncating to %d", log, offset)
    log.truncate_to(offset)
