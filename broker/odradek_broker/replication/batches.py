"""Record batches as they come from a leader, parsed just enough to append them.

A leader cuts its answer at a number of bytes, so the last batch may be incomplete. And it sends
the bytes of its file as they are at that moment: if it has lost the lead meanwhile, they may be
those of the next leader. Epochs tell: in an answer of leader epoch 5 to a log that ends in
epoch 3, they begin with 3 at least, never fall, and end with 5 at most.
"""

from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset
from odradek_protocol.records.record_batch import HEADER_BYTES, read_header


def whole_batches(
    records: memoryview, last_epoch: LeaderEpoch, leader_epoch: LeaderEpoch
) -> tuple[memoryview, Offset | None, Offset | None]:
    """The complete batches, their first offset and the one after them; None if there is not even
    one."""
    at = 0
    first_offset: Offset | None = None
    end_offset: Offset | None = None
    size = len(records)
    while size - at >= HEADER_BYTES:
        header = read_header(records, at)
        if header.batch_length < HEADER_BYTES - 12:
            raise KafkaError(ErrorCode.corrupt_message, f"a batch of {header.size} bytes")
        if at + header.size > size:
            break
        if not last_epoch <= header.partition_leader_epoch <= leader_epoch:
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"a batch of epoch {header.partition_leader_epoch} where one of "
                f"{last_epoch} to {leader_epoch} must be",
            )
        last_epoch = header.partition_leader_epoch
        if first_offset is None:
            first_offset = header.base_offset
        end_offset = header.next_offset
        at += header.size
    return records[:at], first_offset, end_offset
