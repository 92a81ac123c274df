"""DeleteRecords (21), v0–2: moves the start of a partition forward.

Offset -1 stands for the high watermark. Whole segments before the new start are removed by the next
retention run; the new start is effective at once and survives a restart. Answered when all live
replicas have moved their start too (they learn it with their next fetch), or with REQUEST_TIMED_OUT
after the request's timeout; the records are deleted in that case too, only later.
"""

import asyncio

from odradek_broker.handlers.context import RequestContext
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 21
VERSIONS = range(0, 3)

HIGH_WATERMARK = -1


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = [(topic.name, one) for topic in request.topics for one in topic.partitions]
    deletions = [_delete(ctx, name, one, request.timeout) for name, one in asked]
    answers = iter(await asyncio.gather(*deletions))
    return Struct(
        topics=[
            Struct(name=topic.name, partitions=[next(answers) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


async def _delete(ctx: RequestContext, topic: str, asked: Struct, timeout_ms: int) -> Struct:
    answer = Struct(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.none
    )
    try:
        partition = ctx.broker.partitions.get(topic, asked.partition_index)
        state = partition.led_here()
        if not partition.log.config.cleanup_delete:
            raise KafkaError(ErrorCode.policy_violation)
        offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        partition.log.advance_log_start_offset(offset)
        if state.low_watermark(partition.log.log_start_offset) < offset:
            await _everywhere(ctx, partition, offset, timeout_ms)
        else:
            ctx.broker.partitions.mark_dirty(partition)
        answer.low_watermark = state.low_watermark(partition.log.log_start_offset)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


async def _everywhere(
    ctx: RequestContext, partition: Partition, offset: int, timeout_ms: int
) -> None:
    """Waits until all live replicas have moved their start."""
    deleted: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    waiter = _Deleted(deleted)
    partition.when_deleted(offset, waiter, 0)
    ctx.broker.partitions.mark_dirty(partition)
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):  # wait_for may lose a cancellation
            error = await deleted
    except TimeoutError:
        partition.give_up_deletion(waiter)
        error = ErrorCode.request_timed_out
    if error:
        raise KafkaError(error)


class _Deleted:
    """An AckWaiter that can be awaited."""

    def __init__(self, future: asyncio.Future[ErrorCode]) -> None:
        self._future = future

    def acknowledged(self, _: int, error: ErrorCode) -> None:
        if not self._future.done():
            self._future.set_result(error)
