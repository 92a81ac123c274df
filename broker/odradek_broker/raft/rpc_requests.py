"""Requests of the quorum as Kafka's messages: encoded for other nodes, decoded from them.

    api_key, version, struct = encode(VoteRequest(…), cluster_id, fetch_bytes_max)
    decode_vote(struct) -> VoteRequest          what a handler passes to the quorum

Kafka's messages have room for many partitions; the quorum has one, and a request that does not
name exactly `__cluster_metadata-0` gets INVALID_REQUEST. Only the newest version of each API is
implemented: the members of a quorum run the same release or an adjacent one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from odradek_broker.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
    VoteRequest,
)
from odradek_broker.raft.values import OffsetAndEpoch, RaftEndpoint, ReplicaKey
from odradek_broker.raft.voters import Voter
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import METADATA_TOPIC, ZERO_UUID
from odradek_protocol.messages.struct import Struct

VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH, FETCH_SNAPSHOT = 52, 53, 54, 1, 59
ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER = 80, 81, 82

VERSIONS = {
    VOTE: 2,
    BEGIN_QUORUM_EPOCH: 1,
    END_QUORUM_EPOCH: 1,
    FETCH: 18,
    FETCH_SNAPSHOT: 1,
    ADD_RAFT_VOTER: 1,
    REMOVE_RAFT_VOTER: 0,
    UPDATE_RAFT_VOTER: 0,
}
# The id that Kafka gives to its metadata topic.
METADATA_TOPIC_ID = UUID(int=1)


def encode(request: Request, cluster_id: str, max_bytes: int) -> tuple[int, int, Struct]:
    """(API key, version, message). `max_bytes` limits the records in a fetch response."""
    api_key, fields = _ENCODERS[type(request)](request, max_bytes)
    return api_key, VERSIONS[api_key], Struct(cluster_id=cluster_id, **fields)


def _topics(**partition: object) -> list[Struct]:
    partitions = [Struct(partition_index=0, **partition)]
    return [Struct(topic_name=METADATA_TOPIC, partitions=partitions)]


def endpoint_structs(endpoints: Sequence[RaftEndpoint]) -> list[Struct]:
    return [Struct(name=name, host=host, port=port) for name, host, port in endpoints]


def _encode_vote(request: VoteRequest, _: int) -> tuple[int, dict[str, Any]]:
    topics = _topics(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_epoch_end_offset,
        pre_vote=request.pre_vote,
    )
    return VOTE, {"voter_id": request.voter.id, "topics": topics}


def decode_vote(message: Struct) -> VoteRequest:
    asked = _only_partition(message)
    return VoteRequest(
        voter=ReplicaKey(message.voter_id, asked.voter_directory_id or ZERO_UUID),
        candidate=ReplicaKey(asked.replica_id, asked.replica_directory_id or ZERO_UUID),
        epoch=asked.replica_epoch,
        last_epoch=asked.last_offset_epoch,
        last_epoch_end_offset=asked.last_offset,
        pre_vote=asked.pre_vote,
    )


def _encode_begin(request: BeginQuorumEpochRequest, _: int) -> tuple[int, dict[str, Any]]:
    topics = _topics(
        voter_directory_id=request.voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    endpoints = endpoint_structs(request.endpoints)
    fields = {"voter_id": request.voter.id, "topics": topics, "leader_endpoints": endpoints}
    return BEGIN_QUORUM_EPOCH, fields


def decode_begin_quorum_epoch(message: Struct) -> BeginQuorumEpochRequest:
    partition_data = _only_partition(message)
    return BeginQuorumEpochRequest(
        voter=ReplicaKey(message.voter_id, partition_data.voter_directory_id or ZERO_UUID),
        leader_id=partition_data.leader_id,
        epoch=partition_data.leader_epoch,
        endpoints=_endpoints(message.leader_endpoints),
    )


def _encode_end(request: EndQuorumEpochRequest, _: int) -> tuple[int, dict[str, Any]]:
    topics = _topics(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            Struct(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.preferred_candidates
        ],
    )
    endpoints = endpoint_structs(request.endpoints)
    return END_QUORUM_EPOCH, {"topics": topics, "leader_endpoints": endpoints}


def decode_end_quorum_epoch(message: Struct) -> EndQuorumEpochRequest:
    partition_data = _only_partition(message)
    return EndQuorumEpochRequest(
        leader_id=partition_data.leader_id,
        epoch=partition_data.leader_epoch,
        preferred_candidates=tuple(
            ReplicaKey(c.candidate_id, c.candidate_directory_id or ZERO_UUID)
            for c in partition_data.preferred_candidates
        ),
        endpoints=_endpoints(message.leader_endpoints),
    )


def _encode_fetch(request: FetchRequest, max_bytes: int) -> tuple[int, dict[str, Any]]:
    partition = Struct(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return FETCH, {
        "replica_state": Struct(replica_id=request.replica.id, replica_epoch=-1),
        "max_wait": request.max_wait_ms,
        "min_bytes": 0,
        "max_bytes": max_bytes,
        "topics": [Struct(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        "forgotten_topics_data": [],
    }


def _encode_fetch_snapshot(request: FetchSnapshotRequest, _: int) -> tuple[int, dict[str, Any]]:
    partition = Struct(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=Struct(end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return FETCH_SNAPSHOT, {
        "replica_id": request.replica.id,
        "max_bytes": request.max_bytes,
        "topics": [Struct(name=METADATA_TOPIC, partitions=[partition])],
    }


def decode_fetch_snapshot(message: Struct) -> FetchSnapshotRequest:
    asked = _only(message.topics, "name", "partition")
    return FetchSnapshotRequest(
        replica=ReplicaKey(message.replica_id, asked.replica_directory_id or ZERO_UUID),
        epoch=asked.current_leader_epoch,
        snapshot_id=OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
        position=asked.position,
        max_bytes=message.max_bytes,
    )


def _voter_fields(voter: Voter) -> dict[str, Any]:
    return {
        "voter_id": voter.key.id,
        "voter_directory_id": voter.key.directory_id,
        "listeners": endpoint_structs(voter.endpoints),
    }


def _decode_voter(message: Struct) -> Voter:
    key = ReplicaKey(message.voter_id, message.voter_directory_id or ZERO_UUID)
    return Voter(key, _endpoints(message.listeners))


def _encode_add_voter(request: AddVoterRequest, _: int) -> tuple[int, dict[str, Any]]:
    return ADD_RAFT_VOTER, {"timeout": request.timeout_ms, **_voter_fields(request.voter)}


def decode_add_raft_voter(message: Struct) -> AddVoterRequest:
    return AddVoterRequest(_decode_voter(message), message.timeout)


def _encode_remove_voter(request: RemoveVoterRequest, _: int) -> tuple[int, dict[str, Any]]:
    key = request.key
    return REMOVE_RAFT_VOTER, {"voter_id": key.id, "voter_directory_id": key.directory_id}


def decode_remove_raft_voter(message: Struct) -> RemoveVoterRequest:
    key = ReplicaKey(message.voter_id, message.voter_directory_id or ZERO_UUID)
    return RemoveVoterRequest(key)


def _encode_update_voter(request: UpdateVoterRequest, _: int) -> tuple[int, dict[str, Any]]:
    feature = Struct(
        min_supported_version=request.voter.kraft_version_min,
        max_supported_version=request.voter.kraft_version_max,
    )
    return UPDATE_RAFT_VOTER, {
        "current_leader_epoch": request.epoch,
        "k_raft_version_feature": feature,
        **_voter_fields(request.voter),
    }


def decode_update_raft_voter(message: Struct) -> UpdateVoterRequest:
    feature = message.k_raft_version_feature
    voter = _decode_voter(message)
    return UpdateVoterRequest(
        message.current_leader_epoch,
        Voter(
            voter.key,
            voter.endpoints,
            feature.min_supported_version,
            feature.max_supported_version,
        ),
    )


def _endpoints(listeners: Sequence[Struct]) -> tuple[RaftEndpoint, ...]:
    return tuple(RaftEndpoint(item.name, item.host, item.port) for item in listeners)


def _only_partition(message: Struct) -> Any:
    return _only(message.topics, "topic_name", "partition_index")


def _only(topics: Sequence[Struct], name: str, index: str) -> Any:
    if len(topics) == 1 and getattr(topics[0], name) == METADATA_TOPIC:
        partitions = topics[0].partitions
        if len(partitions) == 1 and getattr(partitions[0], index) == 0:
            return partitions[0]
    raise KafkaError(ErrorCode.invalid_request, f"only {METADATA_TOPIC}-0 has a quorum")


_ENCODERS: dict[type, Callable[[Any, int], tuple[int, dict[str, Any]]]] = {
    VoteRequest: _encode_vote,
    BeginQuorumEpochRequest: _encode_begin,
    EndQuorumEpochRequest: _encode_end,
    FetchRequest: _encode_fetch,
    FetchSnapshotRequest: _encode_fetch_snapshot,
    AddVoterRequest: _encode_add_voter,
    RemoveVoterRequest: _encode_remove_voter,
    UpdateVoterRequest: _encode_update_voter,
}
