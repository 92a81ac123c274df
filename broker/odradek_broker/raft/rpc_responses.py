"""Responses of the quorum as Kafka's messages: decoded from other nodes, encoded for them.

    decode(request, struct, listener) -> VoteResponse | FetchResponse | …
    encode(request, response) -> Struct             (Fetch has its own, handlers/fetch_metadata.py)

A response has the leader's id in a field of its own and its address in `node_endpoints`, without
a listener name: it is always that of the quorum, which has the same name on all nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_broker.raft.log_files import parse_batches
from odradek_broker.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from odradek_broker.raft.rpc_requests import METADATA_TOPIC_ID
from odradek_broker.raft.values import LeaderAndEpoch, OffsetAndEpoch, RaftEndpoint
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import METADATA_TOPIC
from odradek_protocol.messages.struct import Struct

_NOBODY = -1


def decode(request: Request, message: Struct, listener: str) -> Response:
    """The response to `request`. KafkaError if the whole request was refused (by a node of another
    cluster, or one that does not support it), DecodeError if its records are damaged."""
    decoder = _DECODERS[type(request)]
    error = ErrorCode(message.error_code)
    if error is not ErrorCode.none and decoder not in (_decode_change, _decode_update):
        raise KafkaError(error)
    return decoder(message, listener)


def encode(response: Response) -> Struct:
    """All responses except Fetch and FetchSnapshot, which carry records."""
    return _ENCODERS[type(response)](response)


def _leader(node_id: int, epoch: int, message: Struct, listener: str) -> LeaderAndEpoch:
    if node_id == _NOBODY:
        return LeaderAndEpoch(None, epoch)
    endpoints = tuple(
        RaftEndpoint(listener, node.host, node.port)
        for node in message.node_endpoints
        if node.node_id == node_id
    )
    return LeaderAndEpoch(node_id, epoch, endpoints)


def leader_fields(leader: LeaderAndEpoch) -> dict[str, int]:
    node_id = _NOBODY if leader.leader_id is None else leader.leader_id
    return {"leader_id": node_id, "leader_epoch": leader.epoch}


def _node_endpoints(leader: LeaderAndEpoch) -> list[Struct]:
    return [
        Struct(node_id=leader.leader_id, host=endpoint.host, port=endpoint.port)
        for endpoint in leader.endpoints[:1]
        if leader.leader_id is not None
    ]


def _partition_of(message: Struct) -> Any:
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.unknown_server_error, "the response is about other partitions")
    return message.topics[0].partitions[0]


def _encode_one(leader: LeaderAndEpoch, **fields: object) -> Struct:
    partition_data = Struct(partition_index=0, **leader_fields(leader), **fields)
    return Struct(
        error_code=ErrorCode.none,
        topics=[Struct(topic_name=METADATA_TOPIC, partitions=[partition_data])],
        node_endpoints=_node_endpoints(leader),
    )


def _decode_vote(message: Struct, listener: str) -> VoteResponse:
    partition_data = _partition_of(message)
    leader = _leader(partition_data.leader_id, partition_data.leader_epoch, message, listener)
    return VoteResponse(ErrorCode(partition_data.error_code), leader, partition_data.vote_granted)


def _encode_vote(response: VoteResponse) -> Struct:
    granted = response.granted
    return _encode_one(response.leader, error_code=response.error, vote_granted=granted)


def _decode_begin(message: Struct, listener: str) -> BeginQuorumEpochResponse:
    partition_data = _partition_of(message)
    leader = _leader(partition_data.leader_id, partition_data.leader_epoch, message, listener)
    return BeginQuorumEpochResponse(ErrorCode(partition_data.error_code), leader)


def _decode_end(message: Struct, listener: str) -> EndQuorumEpochResponse:
    partition_data = _partition_of(message)
    leader = _leader(partition_data.leader_id, partition_data.leader_epoch, message, listener)
    return EndQuorumEpochResponse(ErrorCode(partition_data.error_code), leader)


def _encode_begin_or_end(response: BeginQuorumEpochResponse | EndQuorumEpochResponse) -> Struct:
    return _encode_one(response.leader, error_code=response.error)


def _decode_fetch(message: Struct, listener: str) -> FetchResponse:
    topics = message.responses
    if len(topics) != 1 or topics[0].topic_id != METADATA_TOPIC_ID:
        raise KafkaError(ErrorCode.unknown_server_error, "the response is about other partitions")
    partition_data = topics[0].partitions[0]
    current = partition_data.current_leader
    diverging, snapshot_id = partition_data.diverging_epoch, partition_data.snapshot_id
    return FetchResponse(
        error=ErrorCode(partition_data.error_code),
        leader=_leader(current.leader_id, current.leader_epoch, message, listener),
        high_watermark=partition_data.high_watermark,
        log_start_offset=partition_data.log_start_offset,
        diverging=OffsetAndEpoch(diverging.end_offset, diverging.epoch)
        if diverging.end_offset >= 0
        else None,
        snapshot_id=OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch)
        if snapshot_id.end_offset >= 0
        else None,
        batches=parse_batches(partition_data.records or b""),
    )


def _decode_fetch_snapshot(message: Struct, listener: str) -> FetchSnapshotResponse:
    partition_data = _partition_of(message)
    current = partition_data.current_leader
    return FetchSnapshotResponse(
        error=ErrorCode(partition_data.error_code),
        leader=_leader(current.leader_id, current.leader_epoch, message, listener),
        snapshot_id=OffsetAndEpoch(
            partition_data.snapshot_id.end_offset, partition_data.snapshot_id.epoch
        ),
        size_bytes=partition_data.size,
        position=partition_data.position,
        data=bytes(partition_data.unaligned_records or b""),
    )


def encode_fetch_snapshot(response: FetchSnapshotResponse, data: bytes) -> Struct:
    snapshot_id = response.snapshot_id
    partition_data = Struct(
        index=0,
        error_code=response.error,
        snapshot_id=Struct(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=Struct(**leader_fields(response.leader)),
        size=response.size_bytes,
        position=response.position,
        unaligned_records=data,
    )
    return Struct(
        error_code=ErrorCode.none,
        topics=[Struct(name=METADATA_TOPIC, partitions=[partition_data])],
        node_endpoints=_node_endpoints(response.leader),
    )


def _decode_change(message: Struct, _: str) -> VoterChangeResponse:
    """AddRaftVoter and RemoveRaftVoter do not name the leader."""
    unknown = LeaderAndEpoch(None, 0)
    return VoterChangeResponse(ErrorCode(message.error_code), message.error_message or "", unknown)


def _decode_update(message: Struct, listener: str) -> VoterChangeResponse:
    current = message.current_leader
    leader = LeaderAndEpoch(None, max(current.leader_epoch, 0))
    if current.leader_id != _NOBODY:
        endpoint = RaftEndpoint(listener, current.host, current.port)
        leader = LeaderAndEpoch(current.leader_id, current.leader_epoch, (endpoint,))
    return VoterChangeResponse(ErrorCode(message.error_code), "", leader)


def _encode_change(response: VoterChangeResponse) -> Struct:
    """One response for three APIs; each encodes the fields that it has."""
    message = response.message or None
    return Struct(error_code=response.error, error_message=message)


def encode_update_voter(response: VoterChangeResponse) -> Struct:
    leader = response.leader
    where = leader.endpoints[0] if leader.endpoints else RaftEndpoint("", "", 0)
    current = Struct(**leader_fields(leader), host=where.host, port=where.port)
    return Struct(error_code=response.error, current_leader=current)


_DECODERS: dict[type, Callable[[Struct, str], Response]] = {
    VoteRequest: _decode_vote,
    BeginQuorumEpochRequest: _decode_begin,
    EndQuorumEpochRequest: _decode_end,
    FetchRequest: _decode_fetch,
    FetchSnapshotRequest: _decode_fetch_snapshot,
    AddVoterRequest: _decode_change,
    RemoveVoterRequest: _decode_change,
    UpdateVoterRequest: _decode_update,
}
_ENCODERS: dict[type, Callable[[Any], Struct]] = {
    VoteResponse: _encode_vote,
    BeginQuorumEpochResponse: _encode_begin_or_end,
    EndQuorumEpochResponse: _encode_begin_or_end,
    VoterChangeResponse: _encode_change,
}
