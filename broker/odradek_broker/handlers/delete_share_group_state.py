"""DeleteShareGroupState (86), v0: a group coordinator deletes the state of share partitions.
Sent by brokers.

NOT_COORDINATOR if another broker keeps the state; errors are per partition, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.share.persister import answer_delete
from odradek_protocol.messages.struct import Struct

API_KEY = 86
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await answer_delete(ctx.broker.share_coordinator, request)
