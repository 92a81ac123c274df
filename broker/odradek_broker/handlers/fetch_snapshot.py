"""FetchSnapshot (59), v1: a node that lags too far behind copies a metadata snapshot in parts."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.quorum_calls import ask_quorum
from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_broker.raft.messages import FetchSnapshotResponse
from odradek_protocol.messages.struct import Struct

API_KEY = 59
VERSIONS = range(1, 2)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = rpc_requests.decode_fetch_snapshot(request)
    response, data = await ask_quorum(ctx, request.cluster_id, asked)
    assert isinstance(response, FetchSnapshotResponse)
    assert data is None or isinstance(data, bytes)
    return rpc_responses.encode_fetch_snapshot(response, data or b"")
