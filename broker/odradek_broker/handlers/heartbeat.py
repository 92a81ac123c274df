"""Heartbeat (12), v0–4: a member is alive; the response says whether it has to rejoin."""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 12
VERSIONS = range(0, 5)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return Struct(error_code=await ctx.broker.groups.heartbeat(request))
    except KafkaError as error:
        return Struct(error_code=error.code)
