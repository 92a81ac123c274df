"""SyncGroup (14), v0–5: the group's leader sends the assignment, every member gets its part.

Answered when the assignment is written and committed. From v5 on the request has to name the
protocol of the JoinGroup response (KIP-559).
"""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 14
VERSIONS = range(0, 6)

PROTOCOL_SINCE = 5


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.api_version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return Struct(error_code=ErrorCode.inconsistent_group_protocol, assignment=b"")
    try:
        return await ctx.broker.groups.sync(request)
    except KafkaError as error:
        return Struct(error_code=error.code, assignment=b"")
