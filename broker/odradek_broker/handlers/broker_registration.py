"""BrokerRegistration (62), v0–4: a broker that starts registers with the controller.

Only for brokers of the same cluster. The response has the broker epoch; the broker is fenced until
its heartbeats report that it has caught up. From version 3 on the request has the broker epoch of
the last clean shutdown; without it, every shutdown counts as unclean.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.messages.struct import Struct

API_KEY = 62
VERSIONS = range(0, 5)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    return await ctx.broker.controller.broker_registration(request)
