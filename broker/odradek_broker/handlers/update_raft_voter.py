"""UpdateRaftVoter (82), v0: a voter reports its new endpoints to the leader of the quorum."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import ask_quorum
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_broker.raft.messages import VoterChangeResponse
from odradek_protocol.messages.struct import Struct

API_KEY = 82
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    change = rpc_requests.decode_update_raft_voter(request)
    response, _ = await ask_quorum(ctx, request.cluster_id, change)
    assert isinstance(response, VoterChangeResponse)
    return rpc_responses.encode_update_voter(response)
