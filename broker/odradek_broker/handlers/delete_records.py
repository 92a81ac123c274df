"""DeleteRecords (21), v0–2: moves the start of a partition forward.

-1 means "everything up to the high watermark". Whole segments below the new start are removed
by the next retention run; the start itself holds at once and survives a restart.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.wire.struct import Struct

API_KEY = 21
VERSIONS = range(0, 3)

HIGH_WATERMARK = -1


def handle(ctx: RequestContext, request: Struct) -> Struct:
    return Struct(
        topics=[
            Struct(
                name=topic.name,
                partitions=[_delete(ctx, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(ctx: RequestContext, topic: str, asked: Struct) -> Struct:
    answer = Struct(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.none
    )
    try:
        partition = ctx.broker.partitions.get(topic, asked.partition_index)
        partition.led_here()
        if not partition.log.config.cleanup_delete:
            raise KafkaError(ErrorCode.policy_violation)
        offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        partition.log.advance_log_start_offset(offset)
        answer.low_watermark = partition.log.log_start_offset
    except KafkaError as error:
        answer.error_code = error.code
    return answer
