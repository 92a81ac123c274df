"""BrokerHeartbeat (63), v0–2: a broker is alive, and asks to be unfenced, fenced or shut down.

Brokers only. The response says whether the broker is fenced and whether it may shut down now. Left
out: cordoned directories (v2); none is ever cordoned.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.messages.struct import Struct

API_KEY = 63
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    return await ctx.broker.controller.broker_heartbeat(request)
