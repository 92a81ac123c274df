"""InitializeShareGroupState (83), v0: a group coordinator creates the state of share partitions, or
resets it (a larger state epoch). Sent by brokers.

NOT_COORDINATOR if another broker keeps the state; errors are per partition, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.share.persister import answer_initialize
from odradek_protocol.messages.struct import Struct

API_KEY = 83
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await answer_initialize(ctx.broker.share_coordinator, request)
