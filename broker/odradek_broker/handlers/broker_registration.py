"""BrokerRegistration (62), v0–4: a broker that starts makes itself known to the controller.

Only from brokers of the same cluster. The answer is its broker epoch; it is fenced until its
heartbeats say that it has caught up. Version 3 tells the epoch of a clean shutdown: without it,
every stop counts as unclean.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.messages.struct import Struct

API_KEY = 62
VERSIONS = range(0, 5)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    return await ctx.broker.controller.broker_registration(request)
