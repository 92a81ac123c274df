"""BeginQuorumEpoch (53), v1: a new leader of the metadata quorum announces itself to a voter."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import ask_quorum
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_protocol.messages.struct import Struct

API_KEY = 53
VERSIONS = range(1, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    announced = rpc_requests.decode_begin_quorum_epoch(request)
    response, _ = await ask_quorum(ctx, request.cluster_id, announced)
    return rpc_responses.encode(response)
