"""ListPartitionReassignments (46), v0: partitions that are moving between brokers.

Answered from this broker's metadata, which may be a moment behind the controller's.
"""

from odradek_broker.controller.reassignments import list_partition_reassignments
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.messages.struct import Struct

API_KEY = 46
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    return list_partition_reassignments(ctx.broker.controller.image, request)
