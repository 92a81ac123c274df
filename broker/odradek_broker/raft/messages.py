"""Requests and responses between the nodes of a quorum: the content of Kafka's RPCs.

    Vote 52, BeginQuorumEpoch 53, EndQuorumEpoch 54, Fetch 1, FetchSnapshot 59,
    AddRaftVoter 80, RemoveRaftVoter 81, UpdateRaftVoter 82

Every response names the leader as far as the responding node knows, so that one round trip to
any node finds the leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from odradek_broker.raft.values import (
    Batch,
    LeaderAndEpoch,
    NodeId,
    OffsetAndEpoch,
    RaftEndpoint,
    ReplicaKey,
)
from odradek_broker.raft.voters import Voter
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A pre-vote asks for a promise in the current epoch, a vote for the vote of a new epoch."""

    voter: ReplicaKey  # the voter that is asked; a node with another disk must refuse
    candidate: ReplicaKey
    epoch: LeaderEpoch
    last_epoch: LeaderEpoch
    last_epoch_end_offset: Offset
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    error: ErrorCode
    leader: LeaderAndEpoch
    granted: bool = False


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """From a leader to voters that do not fetch from it (yet)."""

    voter: ReplicaKey
    leader_id: NodeId
    epoch: LeaderEpoch
    endpoints: tuple[RaftEndpoint, ...]


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """From a leader that resigns; the first of `preferred_candidates` should stand at once."""

    leader_id: NodeId
    epoch: LeaderEpoch
    preferred_candidates: tuple[ReplicaKey, ...]
    endpoints: tuple[RaftEndpoint, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Fetches from `fetch_offset` on, and acknowledges that everything below is durable here."""

    replica: ReplicaKey
    epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    high_watermark: Offset  # as known here: the leader responds at once if its own is higher
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Records, or the point where the logs diverge, or the snapshot to fetch instead."""

    error: ErrorCode
    leader: LeaderAndEpoch
    high_watermark: Offset = 0
    log_start_offset: Offset = 0
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    error: ErrorCode
    leader: LeaderAndEpoch
    snapshot_id: OffsetAndEpoch
    size_bytes: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    voter: Voter
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """From a voter whose addresses differ from those in the voter set."""

    epoch: LeaderEpoch
    voter: Voter


@dataclass(frozen=True, slots=True)
class VoterChangeResponse:
    """The response to Add-, Remove- and UpdateRaftVoter."""

    error: ErrorCode
    message: str
    leader: LeaderAndEpoch


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)
Response: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
)
