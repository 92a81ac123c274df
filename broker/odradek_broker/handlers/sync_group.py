"""SyncGroup (14), v0–5: the leader brings the assignment, every member gets its part.

Answered when the assignment is written and committed.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import KafkaError
from odradek_broker.wire.struct import Struct

API_KEY = 14
VERSIONS = range(0, 6)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await ctx.broker.groups.sync(request)
    except KafkaError as error:
        return Struct(error_code=error.code, assignment=b"")
