"""InitProducerId (22), v0–5: a producer id for an idempotent producer.

Ids come in blocks from the controller, so that an id is never given twice, also after a crash.
Left out until the transactions issue: transactional ids.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode
from odradek_broker.wire.struct import Struct

API_KEY = 22
VERSIONS = range(0, 6)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    if request.transactional_id is not None:
        # Not retriable, so that a transactional client fails at once instead of asking forever.
        return Struct(error_code=ErrorCode.transactional_id_authorization_failed)
    return Struct(
        error_code=ErrorCode.none,
        producer_id=await ctx.broker.producer_ids.next(),
        producer_epoch=0,
    )
