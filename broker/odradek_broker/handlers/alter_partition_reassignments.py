"""AlterPartitionReassignments (45), v0–1: moves partitions to other brokers, or cancels moves.

Decided by the controller and answered when the move has begun; ListPartitionReassignments shows
whether it is finished. Before version 1 a move may always change the replication factor.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_protocol.messages.struct import Struct

API_KEY = 45
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await to_controller(ctx, request, ctx.broker.controller.alter_partition_reassignments)
