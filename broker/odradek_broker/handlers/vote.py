"""Vote (52), v2: a candidate of the metadata quorum asks for this node's vote, or, in a pre-vote,
whether it would get it. Answered after the vote is on disk."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import ask_quorum
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_protocol.messages.struct import Struct

API_KEY = 52
VERSIONS = range(2, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = rpc_requests.decode_vote(request)
    response, _ = await ask_quorum(ctx, request.cluster_id, asked)
    return rpc_responses.encode(response)
