"""ConsumerGroupHeartbeat (68), v0–1: join a group of the consumer protocol, stay in it, leave it.

The one request of KIP-848's members: what they subscribe to and own goes up, what they shall own
comes down. With v1 the client makes its member id itself, and may subscribe by expression (RE2).
A classic group that members of this protocol join is converted while it runs.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 68
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await ctx.broker.consumer_groups.heartbeat(
            request, ctx.api_version, ctx.client_id or "", f"/{ctx.client_host}"
        )
    except KafkaError as error:
        return Struct(
            error_code=error.code,
            error_message=error.message,
            member_id=None,
            member_epoch=0,
            assignment=None,
        )
