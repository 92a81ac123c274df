"""AllocateProducerIds (67), v0: reserves a block of producer ids for a broker. Brokers only."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.messages.struct import Struct

API_KEY = 67
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    return await ctx.broker.controller.allocate_producer_ids(request)
