"""AddRaftVoter (80), v0–1: makes an observer of the metadata quorum a voter.

Answered when the new voter set is committed. Normally the controller adds voters by itself, up to
three; this API is for administrators who want others. (v1's `ack_when_committed=false`, an earlier
response, is ignored.)
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.quorum_calls import check_cluster, check_voter
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 80
VERSIONS = range(0, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_cluster(ctx, request.cluster_id)
    check_voter("Add", request)
    change = rpc_requests.decode_add_raft_voter(request)

    async def decide(_: Struct) -> Struct:
        answer = await ctx.broker.quorum.change_voters(change)
        if answer.error is ErrorCode.none:
            await ctx.broker.controller.forget_voter_removal(change.voter.key.id)
        return rpc_responses.encode(answer)

    return await to_controller(ctx, request, decide)
