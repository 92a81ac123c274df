"""EndTxn (26), v0–5: commits or aborts a transaction.

Answered when the decision is committed; then it is final, and the markers follow (txn/service.py).
From v5 on each transaction has its own epoch (KIP-890): the response has the producer id and epoch
of the next one. PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before v2.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 26
VERSIONS = range(0, 6)

FENCED_SINCE = 2
EPOCH_BUMP_SINCE = 5


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        step = await ctx.broker.transactions.end_txn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            version=2 if ctx.api_version >= EPOCH_BUMP_SINCE else 0,
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.producer_fenced and ctx.api_version < FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        return Struct(error_code=code, producer_id=-1, producer_epoch=-1)
    return Struct(
        error_code=ErrorCode.none,
        producer_id=step.producer_id,
        producer_epoch=step.producer_epoch,
    )
