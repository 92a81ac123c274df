"""ReadShareGroupState (84), v0: the leader of a partition loads what was kept for a share
group. Leaders with an older epoch are fenced from then on. Sent by brokers.

NOT_COORDINATOR if another broker keeps the state; errors are per partition, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.share.persister import answer_read
from odradek_protocol.messages.struct import Struct

API_KEY = 84
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await answer_read(ctx.broker.share_coordinator, request)
