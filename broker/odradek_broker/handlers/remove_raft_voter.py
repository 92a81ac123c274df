"""RemoveRaftVoter (81), v0: removes a voter of the metadata quorum.

The controller will not add it again by itself; controller/voters.py says how that is recorded. The
record is written before the removal: a crash in between leaves a voter that would not be added
again, which is harmless.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.quorum_calls import check_cluster, check_voter
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 81
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_cluster(ctx, request.cluster_id)
    check_voter("Remove", request)
    change = rpc_requests.decode_remove_raft_voter(request)

    quorum, controller = ctx.broker.quorum, ctx.broker.controller

    async def decide(_: Struct) -> Struct:
        if change.key in quorum.voters:
            await controller.remember_voter_removal(change.key.id)
        answer = await quorum.change_voters(change)
        if answer.error is not ErrorCode.none and change.key in quorum.voters:
            await controller.forget_voter_removal(change.key.id)
        return rpc_responses.encode(answer)

    return await to_controller(ctx, request, decide)
