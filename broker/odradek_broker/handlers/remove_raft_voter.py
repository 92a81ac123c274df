"""RemoveRaftVoter (81), v0: a node no longer votes about the metadata log."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.quorum_calls import check_cluster
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_broker.wire.struct import Struct

API_KEY = 81
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_cluster(ctx, request.cluster_id)
    change = rpc_requests.decode_remove_raft_voter(request)

    async def decide(_: Struct) -> Struct:
        return rpc_responses.encode(await ctx.broker.quorum.change_voters(change))

    return await to_controller(ctx, request, decide)
