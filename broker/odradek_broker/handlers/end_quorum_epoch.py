"""EndQuorumEpoch (54), v1: the leader of the metadata quorum resigns and names its successors."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import ask_quorum
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_protocol.messages.struct import Struct

API_KEY = 54
VERSIONS = range(1, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    announced = rpc_requests.decode_end_quorum_epoch(request)
    response, _ = await ask_quorum(ctx, request.cluster_id, announced)
    return rpc_responses.encode(response)
