"""UnregisterBroker (64), v0: removes the registration of a broker that will not come back."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_protocol.messages.struct import Struct

API_KEY = 64
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await to_controller(ctx, request, ctx.broker.controller.unregister_broker)
