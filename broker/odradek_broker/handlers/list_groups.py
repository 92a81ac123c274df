"""ListGroups (16), v0–5: groups that this broker coordinates, by state (v4+) and type (v5+)."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 16
VERSIONS = range(0, 6)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        groups = await ctx.broker.groups.list_groups(request.states_filter, request.types_filter)
    except KafkaError as error:
        return Struct(error_code=error.code, groups=[])
    return Struct(error_code=ErrorCode.none, groups=groups)
