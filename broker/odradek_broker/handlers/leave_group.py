"""LeaveGroup (13), v0–5: removes a member; from v3 on several, also by their instance ids."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 13
VERSIONS = range(0, 6)

SEVERAL_SINCE = 3


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    several = ctx.api_version >= SEVERAL_SINCE
    members = [(request.member_id, None)]
    if several:
        members = [(member.member_id, member.group_instance_id) for member in request.members]
    try:
        codes = await ctx.broker.groups.leave(request.group_id, members)
    except KafkaError as error:
        return Struct(error_code=error.code, members=[])
    if not several:
        return Struct(error_code=codes[0])
    return Struct(
        error_code=0,
        members=[
            Struct(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(members, codes, strict=True)
        ],
    )
