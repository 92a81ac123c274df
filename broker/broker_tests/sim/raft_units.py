"""A node of the quorum's state machine in a test, and events for it."""

from __future__ import annotations

from random import Random
from typing import TypeVar
from uuid import UUID

from odradek_broker.raft.config import QuorumConfig
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    VoteRequest,
    VoteResponse,
)
from odradek_broker.raft.quorum import Persisted, start_quorum, step
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import (
    BecameLeader,
    Event,
    Flushed,
    Instruction,
    ReceivedRequest,
    ReceivedResponse,
    Reply,
    ReplyWithRecords,
    Send,
    Tick,
)
from odradek_broker.raft.values import (
    Batch,
    LeaderAndEpoch,
    RaftEndpoint,
    ReplicaKey,
)
from odradek_broker.raft.vote_state import VoteState
from odradek_broker.raft.voters import Voter, VoterHistory, VoterSet
from odradek_protocol.error_codes import ErrorCode

T = TypeVar("T")


KEYS = {i: ReplicaKey(i, UUID(int=100 + i)) for i in range(1, 6)}


CONFIG = QuorumConfig()


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(KEYS[i], endpoints_of(i)) for i in ids))


def endpoints_of(node_id: int) -> tuple[RaftEndpoint, ...]:
    return (RaftEndpoint("CONTROLLER", f"host-{node_id}", 9093),)


def node(
    node_id: int,
    voters: VoterSet,
    *,
    vote: VoteState | None = None,
    batches: tuple[Batch, ...] = (),
) -> QuorumState:
    log = LogView(VoterHistory.formatted_with(voters))
    for batch in batches:
        log.append(batch)
    log.flushed_offset = log.end_offset
    return start_quorum(
        KEYS[node_id],
        endpoints=endpoints_of(node_id),
        config=CONFIG,
        persisted=Persisted(log, vote),
        bootstrap=(),
        rng=Random(1),
        now_ms=0.0,
    )


def do(state: QuorumState, event: Event, now_ms: float) -> list[Instruction]:
    out = step(state, event, now_ms)
    state.validate()
    return out


def only(kind: type[T], out: list[Instruction]) -> T:
    found = [instruction for instruction in out if isinstance(instruction, kind)]
    assert len(found) == 1, out
    return found[0]


def answer(out: list[Instruction], ticket: object = "t") -> object:
    replies = [i for i in out if isinstance(i, Reply | ReplyWithRecords) and i.ticket == ticket]
    assert len(replies) == 1, out
    return replies[0].response


def fetch(
    node_id: int, epoch: int, position: tuple[int, int], *, hw: int = 0, wait_ms: int = 500
) -> FetchRequest:
    return FetchRequest(KEYS[node_id], epoch, position[0], position[1], hw, wait_ms)


def leader_of_three() -> QuorumState:
    """Node 1, leader of epoch 1, its log [LeaderChange, KRaftVersion, Voters] flushed."""
    state = node(1, voter_set(1, 2, 3))
    out = do(state, Tick(), 2001)
    pre_vote = [i for i in out if isinstance(i, Send)]
    assert all(isinstance(s.request, VoteRequest) and s.request.pre_vote for s in pre_vote)
    granted = VoteResponse(ErrorCode.none, LeaderAndEpoch(None, 0), granted=True)
    out = do(state, ReceivedResponse(2, pre_vote[0].correlation_id, granted), 2002)
    votes = [i for i in out if isinstance(i, Send)]
    granted = VoteResponse(ErrorCode.none, LeaderAndEpoch(None, 1), granted=True)
    out = do(state, ReceivedResponse(3, votes[1].correlation_id, granted), 2003)
    assert only(BecameLeader, out) == BecameLeader(1, 0)
    do(state, Flushed(3, 0), 2004)
    return state


def follower_of_two() -> tuple[QuorumState, int]:
    """Node 1 follows node 2 in epoch 1; the correlation id of its fetch under way."""
    state = node(1, voter_set(1, 2, 3))
    begin = BeginQuorumEpochRequest(KEYS[1], 2, 1, endpoints_of(2))
    out = do(state, ReceivedRequest("t", begin), 10)
    assert state.role is Role.FOLLOWER
    return state, only(Send, out).correlation_id
