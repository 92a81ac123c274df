"""DeleteGroups (42), v0–2: deletes groups that have no members, with all their offsets
(of share groups: with their state)."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 42
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        code = ErrorCode.none
        try:
            await ctx.broker.share_groups.before_deletion(group_id)
            await ctx.broker.groups.delete_group(group_id)
        except KafkaError as error:
            code = error.code
        results.append(Struct(group_id=group_id, error_code=code))
    return Struct(results=results)
