"""AssignReplicasToDirs (73), v0: a broker reports the log directories of its replicas.

Sent only by brokers with more than one directory; otherwise the controller knows it already.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.messages.struct import Struct

API_KEY = 73
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    return await ctx.broker.controller.assign_replicas_to_dirs(request)
