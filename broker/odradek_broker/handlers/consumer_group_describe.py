"""ConsumerGroupDescribe (69), v0–1: epochs and members, with current and target assignments.

GROUP_ID_NOT_FOUND for classic groups too: clients then send DescribeGroups.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.group_describing import describe_each
from odradek_protocol.messages.struct import Struct

API_KEY = 69
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await describe_each(ctx, request, ctx.broker.consumer_groups.describe, no_message="")
