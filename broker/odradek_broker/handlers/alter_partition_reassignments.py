"""AlterPartitionReassignments (45), v0–1: move partitions to other brokers, or take that back.

Decided by the controller; the answer comes when the move has begun, and
ListPartitionReassignments tells when it is done. Before version 1 the replication factor may
always change.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_protocol.messages.struct import Struct

API_KEY = 45
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await to_controller(ctx, request, ctx.broker.controller.alter_partition_reassignments)
