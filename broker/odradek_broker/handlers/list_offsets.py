"""ListOffsets (2), v1–11: the offset at the start or the end of a partition, or at a timestamp.

Special timestamps: -1 end (high watermark, or last stable offset for read_committed), -2 start,
-3 the record with the largest timestamp (KIP-734), -4 start of the local log (the whole log, as
there is no tiered storage), -5 end of the tiered log (there is none: -1), -6 start of the part that
is not yet tiered. A timestamp gives the first record at or after it, -1 if there is none.

Only the leader answers. A leader that was just elected may not know the high watermark of its
predecessor yet; until it does, it answers OFFSET_NOT_AVAILABLE rather than an offset that is too
low. A follower (replica_id >= 0) gets the end of the log itself.
"""

from collections import Counter

from odradek_broker.handlers.context import RequestContext
from odradek_broker.log.types import TimestampOffset
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 2
VERSIONS = range(1, 12)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The version that brought each special timestamp.
SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
OF_A_FOLLOWER = -1
NOTHING = TimestampOffset(timestamp=-1, offset=-1, leader_epoch=-1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    times_asked = Counter(
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
    )
    return Struct(
        topics=[
            Struct(
                name=topic.name,
                partitions=[
                    _answer(
                        ctx,
                        topic.name,
                        partition,
                        _isolation(request),
                        times_asked[topic.name, partition.partition_index] > 1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    ctx: RequestContext,
    topic: str,
    asked: Struct,
    isolation: int,
    repeated: bool,
) -> Struct:
    answer = Struct(partition_index=asked.partition_index, error_code=ErrorCode.none)
    try:
        if repeated:
            raise KafkaError(ErrorCode.invalid_request)
        if asked.timestamp < 0 and ctx.api_version < SINCE_VERSION.get(asked.timestamp, 99):
            raise KafkaError(ErrorCode.unsupported_version)
        partition = ctx.broker.partitions.get(topic, asked.partition_index)
        partition.led_here(asked.current_leader_epoch)
        found = look_up(partition, asked.timestamp, isolation)
    except KafkaError as error:
        answer.error_code = error.code
        if error.code is ErrorCode.offset_not_available and ctx.api_version < 5:
            answer.error_code = ErrorCode.leader_not_available
        found = NOTHING
    answer.timestamp, answer.offset, answer.leader_epoch = found
    return answer


def _isolation(request: Struct) -> int:
    return OF_A_FOLLOWER if request.replica_id >= 0 else request.isolation_level


def look_up(partition: Partition, timestamp: int, isolation: int) -> TimestampOffset:
    log = partition.log
    if isolation == OF_A_FOLLOWER:
        end = log.written_offset
    else:
        end = partition.last_fetchable_offset(isolation == READ_COMMITTED)
    if timestamp == LATEST:
        if isolation != OF_A_FOLLOWER:
            _check_high_watermark(partition)
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampOffset(-1, start, log.epochs.epoch_of(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset()
    else:
        found = log.offset_for_timestamp(timestamp)
    if found is not None and found.offset < end:
        return found
    _check_high_watermark(partition)
    return NOTHING


def _check_high_watermark(partition: Partition) -> None:
    state = partition.led_here()
    if state.high_watermark < state.epoch_start_offset:
        raise KafkaError(ErrorCode.offset_not_available)
