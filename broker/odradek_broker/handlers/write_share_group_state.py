"""WriteShareGroupState (85), v0–1: the leader of a partition keeps acknowledgements and
delivery counts. Sent by brokers.

NOT_COORDINATOR if another broker keeps the state; errors are per partition, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.share.persister import answer_write
from odradek_protocol.messages.struct import Struct

API_KEY = 85
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await answer_write(ctx.broker.share_coordinator, request)
