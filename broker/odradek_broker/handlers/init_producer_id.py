"""InitProducerId (22), v0–5: a producer id and epoch, for an idempotent or transactional producer.

Without a transactional id: a new id from the broker's block, epoch 0. With one, the transaction
coordinator decides: it fences the previous producer of that id and aborts its open transaction
(CONCURRENT_TRANSACTIONS until that is done). From v3 on a producer sends its current id and epoch,
to continue after an error (KIP-360). PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before v4. Left out:
v6, two-phase commit (KIP-939).
"""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import NO_PRODUCER_ID
from odradek_protocol.messages.struct import Struct

API_KEY = 22
VERSIONS = range(0, 6)

FENCED_SINCE = 4
NO_EPOCH = -1


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        producer_id, producer_epoch = await _init(ctx, request)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.producer_fenced and ctx.api_version < FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        return Struct(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return Struct(error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=producer_epoch)


async def _init(ctx: RequestContext, request: Struct) -> tuple[int, int]:
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.invalid_request)
    if request.transactional_id is None:
        return await ctx.broker.producer_ids.next(), 0
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request)
    expected = None if producer_id == NO_PRODUCER_ID else (producer_id, epoch)
    step = await ctx.broker.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout, expected
    )
    if step.error is not ErrorCode.none:
        raise KafkaError(step.error)
    return step.producer_id, step.producer_epoch
