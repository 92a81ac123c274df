"""ReadShareGroupStateSummary (87), v0–1: the start offset of share partitions, without
the state of single records. Sent by brokers.

NOT_COORDINATOR if another broker keeps the state; errors are per partition, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.share.persister import answer_summary
from odradek_protocol.messages.struct import Struct

API_KEY = 87
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await answer_summary(ctx.broker.share_coordinator, request)
