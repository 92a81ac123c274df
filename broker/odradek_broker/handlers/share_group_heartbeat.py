"""ShareGroupHeartbeat (76), v1: join a share group, stay in it, leave it (KIP-932).

The first heartbeat of a group also creates `__share_group_state`, in which the share coordinator
keeps the state of the group's partitions.
"""

from odradek_broker.coordinator.internal_topics import SHARE_STATE_TOPIC
from odradek_broker.handlers import internal_topics
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.share_support import check_enabled
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 76
VERSIONS = range(1, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        check_enabled(ctx)
        if request.member_epoch == 0:
            await internal_topics.ensure(ctx, SHARE_STATE_TOPIC)
        return await ctx.broker.share_groups.heartbeat(
            request, ctx.client_id or "", f"/{ctx.client_host}"
        )
    except KafkaError as error:
        return Struct(
            error_code=error.code,
            error_message=error.message or None,
            member_id=None,
            member_epoch=0,
            assignment=None,
        )
