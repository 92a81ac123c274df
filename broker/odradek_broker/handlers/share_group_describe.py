"""ShareGroupDescribe (77), v1: epochs and members of share groups, with their assignments."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.group_describing import describe_each
from odradek_broker.handlers.share_support import check_enabled
from odradek_protocol.messages.struct import Struct

API_KEY = 77
VERSIONS = range(1, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    async def describe(group_id: str) -> Struct:
        check_enabled(ctx)
        return await ctx.broker.share_groups.describe(group_id)

    return await describe_each(ctx, request, describe, no_message=None)
