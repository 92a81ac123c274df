"""AlterPartition (56), v2–3: the leader of a partition proposes an ISR; the controller decides.

Brokers only. Version 2 has no broker epochs, so it cannot detect a follower that was restarted
after it had caught up.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.messages.struct import Struct

API_KEY = 56
VERSIONS = range(2, 4)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    return await ctx.broker.controller.alter_partition(request)
