"""AlterConfigs (33), v0–2: replaces all that is set for a topic or a broker.

The old way: what a client does not name goes back to its default. Decided by the controller.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.wire.struct import Struct

API_KEY = 33
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await ctx.broker.controller.alter_configs(request)
