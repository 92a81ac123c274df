"""Fetch (1) of `__cluster_metadata`, v18 from other nodes: the metadata quorum's replication.

The topic is named by its id, alone in the request and without a session. The quorum answers at once
or when there are new records, which are sent with sendfile. Called by fetch.py.
"""

from typing import cast
from uuid import UUID

from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_broker.raft import messages
from odradek_broker.raft.messages import FetchResponse, Response
from odradek_broker.raft.rpc_requests import METADATA_TOPIC_ID
from odradek_broker.raft.rpc_responses import leader_fields
from odradek_broker.raft.service import Records
from odradek_broker.raft.values import ReplicaKey
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import ZERO_UUID, BrokerId
from odradek_protocol.messages.fetch import (
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response,
)
from odradek_protocol.primitives import NodeEndpoint

_TOPIC_ID = METADATA_TOPIC_ID.bytes


def is_for_metadata(request: FetchRequest) -> bool:
    topics = request.topics
    return len(topics) == 1 and topics[0][1] == _TOPIC_ID and request.replica_id >= 0


def serve(ctx: RequestContext, request: FetchRequest) -> None:
    try:
        check_sender(ctx, request.cluster_id)
        ctx.is_of_broker()
        asked = _decode(request)
        gone = False

        def ticket(response: Response, records: Records | None) -> None:
            assert isinstance(response, FetchResponse)
            if not gone:
                _answer(ctx, response, records)

        def disconnected() -> None:
            """Every broker always has such a fetch pending: if it disconnects, it may be dead."""
            nonlocal gone
            gone = True
            ctx.broker.controller.lost_contact(BrokerId(request.replica_id))

        ctx.on_disconnect = disconnected
        ctx.broker.quorum.request(asked, ticket)
    except KafkaError as error:
        chunks, size = encode_fetch_response(
            ctx.api_version, ctx.correlation_id, 0, error.code, 0, ()
        )
        ctx.respond(cast(Chunks, chunks), size)


def _decode(request: FetchRequest) -> messages.FetchRequest:
    partitions = request.topics[0][2]
    if len(partitions) != 1 or partitions[0].partition != 0:
        raise KafkaError(ErrorCode.invalid_request, "the metadata topic has one partition")
    asked = partitions[0]
    directory_id = asked.replica_directory_id
    return messages.FetchRequest(
        replica=ReplicaKey(
            request.replica_id, UUID(bytes=directory_id) if directory_id else ZERO_UUID
        ),
        epoch=asked.current_leader_epoch,
        fetch_offset=asked.fetch_offset,
        last_fetched_epoch=asked.last_fetched_epoch,
        high_watermark=asked.high_watermark,
        max_wait_ms=request.max_wait_ms,
    )


def _answer(ctx: RequestContext, response: FetchResponse, records: Records | None) -> None:
    leader = response.leader.at(ctx.listener)
    snapshot_id, diverging = response.snapshot_id, response.diverging
    fields = leader_fields(leader)
    result = FetchPartitionResult(
        partition_index=0,
        error_code=response.error,
        high_watermark=response.high_watermark,
        last_stable_offset=response.high_watermark,
        log_start_offset=response.log_start_offset,
        records=records if records is not None else b"",
        diverging_epoch=(diverging.epoch, diverging.offset) if diverging else None,
        current_leader=(fields["leader_id"], fields["leader_epoch"]),
        snapshot_id=(snapshot_id.offset, snapshot_id.epoch) if snapshot_id else None,
    )
    nodes = [
        NodeEndpoint(leader.leader_id, endpoint.host, endpoint.port, None)
        for endpoint in leader.endpoints[:1]
        if leader.leader_id is not None
    ]
    chunks, size = encode_fetch_response(
        ctx.api_version,
        ctx.correlation_id,
        0,
        ErrorCode.none,
        0,
        [(None, _TOPIC_ID, [result])],
        nodes,
    )
    ctx.respond(cast(Chunks, chunks), size)
