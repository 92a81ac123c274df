"""Votes: for which candidates this node votes, and how it counts the votes it gets.

Two rules make the elected leader safe. A voter votes once per epoch and never forgets its vote
(it responds after the vote is on disk). And it votes only for a candidate whose log is not behind
its own, so the winner has everything that a majority has.
"""

from __future__ import annotations

from odradek_broker.raft import transitions
from odradek_broker.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import Instruction, Reply, Send
from odradek_broker.raft.values import LeaderAndEpoch, NodeId, ReplicaKey
from odradek_protocol.error_codes import ErrorCode

# Backoff after a lost election doubles with each retry, from here up to the configured maximum.
ELECTION_BACKOFF_BASE_MS = 100
BACKOFF_DOUBLINGS_MAX = 10  # more would exceed any configured maximum


def on_vote_request(
    state: QuorumState,
    ticket: object,
    request: VoteRequest,
    now_ms: float,
    out: list[Instruction],
) -> None:
    error, granted = ErrorCode.none, False
    newest_possible = request.epoch if request.pre_vote else request.epoch - 1
    if request.last_epoch_end_offset < 0 or not 0 <= request.last_epoch <= newest_possible:
        error = ErrorCode.invalid_request
    elif request.epoch < state.epoch:
        error = ErrorCode.fenced_leader_epoch
    else:
        if request.epoch > state.epoch:
            transitions.adopt_epoch(state, request.epoch, now_ms, out)
        if request.voter != state.key:
            # Addressed to a disk that this node no longer has, which may have voted already.
            error = ErrorCode.invalid_voter_key
        else:
            granted = can_grant_vote(state, request, now_ms)
            if granted and not request.pre_vote:
                transitions.grant_vote(state, request.candidate, now_ms, out)
    out.append(Reply(ticket, VoteResponse(error, state.leader, granted)))


def can_grant_vote(state: QuorumState, request: VoteRequest, now_ms: float) -> bool:
    """Whether this node votes (or would vote) for the candidate; the epochs are equal."""
    if request.pre_vote:
        return not _has_leader(state, now_ms) and is_up_to_date(state, request)
    if state.voted is not None:
        return state.voted == request.candidate
    return state.leader_id is None and is_up_to_date(state, request)


def _has_leader(state: QuorumState, now_ms: float) -> bool:
    """Whether the leader answered within the fetch timeout, so that no election is needed. (This
    node's own deadline may be a little later; that must not keep others from standing.)"""
    following = state.following
    if following is not None and following.has_fetched:
        return now_ms < following.answered_ms + state.config.fetch_timeout_ms
    return state.role is Role.LEADER


def is_up_to_date(state: QuorumState, request: VoteRequest) -> bool:
    theirs = (request.last_epoch, request.last_epoch_end_offset)
    return theirs >= (state.log.last_epoch, state.log.end_offset)


def on_vote_response(
    state: QuorumState,
    source: NodeId,
    correlation_id: int,
    response: VoteResponse,
    now_ms: float,
    out: list[Instruction],
) -> None:
    transitions.learn_leader(state, response.leader, now_ms, out)
    election = state.election
    if election is None or state.voters.get(source) is None:
        return
    if not is_of_this_round(state, correlation_id):
        return
    election.votes.setdefault(source, response.error is ErrorCode.none and response.granted)
    granted = len(election.granted())
    if granted >= state.voters.majority:
        if state.role is Role.CANDIDATE:
            transitions.lead(state, now_ms, out)
        else:
            transitions.stand_for_election(state, now_ms, out)
    elif len(election.votes) - granted > len(state.voters) - state.voters.majority:
        if state.role is not Role.CANDIDATE:
            transitions.give_up_election(state, now_ms, out)
        elif not election.lost:
            election.lost = True
            state.deadline_ms = now_ms + _lost_election_backoff_ms(state)


def is_of_this_round(state: QuorumState, correlation_id: int) -> bool:
    """Counts a vote, if it belongs to the current round."""
    return state.election is not None and state.election.correlation_id == correlation_id


def on_begin_quorum_epoch(
    state: QuorumState,
    ticket: object,
    request: BeginQuorumEpochRequest,
    now_ms: float,
    out: list[Instruction],
) -> None:
    error = _learn_leader(state, request, now_ms, out)
    if not error and request.voter != state.key:
        error = ErrorCode.invalid_voter_key
    out.append(Reply(ticket, BeginQuorumEpochResponse(error, state.leader)))


def on_end_quorum_epoch(
    state: QuorumState,
    ticket: object,
    request: EndQuorumEpochRequest,
    now_ms: float,
    out: list[Instruction],
) -> None:
    """The leader resigns: the best successor asks for votes at once, the others a bit later."""
    error = _learn_leader(state, request, now_ms, out)
    if not error and state.following is not None and state.leader_id == request.leader_id:
        state.following.has_fetched = False
        wait_ms = _successor_backoff_ms(state, request.preferred_candidates)
        state.deadline_ms = min(state.deadline_ms, now_ms + wait_ms)
    out.append(Reply(ticket, EndQuorumEpochResponse(error, state.leader)))


def _learn_leader(
    state: QuorumState,
    request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
    now_ms: float,
    out: list[Instruction],
) -> ErrorCode:
    """From a request of the leader itself."""
    if request.epoch < state.epoch:
        return ErrorCode.fenced_leader_epoch
    leader = LeaderAndEpoch(request.leader_id, request.epoch, request.endpoints)
    transitions.learn_leader(state, leader, now_ms, out)
    return ErrorCode.none


def on_end_quorum_epoch_response(
    state: QuorumState,
    source: NodeId,
    response: EndQuorumEpochResponse,
    now_ms: float,
    out: list[Instruction],
) -> None:
    transitions.learn_leader(state, response.leader, now_ms, out)
    if state.resignation is not None and source in state.resignation.unacknowledged:
        state.resignation.unacknowledged.remove(source)


def announce_resignation(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """EndQuorumEpoch to every voter that has not confirmed it yet."""
    resignation = state.resignation
    assert resignation is not None
    for voter_id in resignation.unacknowledged:
        request = EndQuorumEpochRequest(
            leader_id=state.key.id,
            epoch=state.epoch,
            preferred_candidates=resignation.preferred,
            endpoints=state.endpoints,
        )
        out.append(Send(voter_id, state.correlation_id(), request))
    resignation.send_at_ms = now_ms + state.config.election_timeout_ms / 2


def _lost_election_backoff_ms(state: QuorumState) -> float:
    doublings = min(state.election_retries, BACKOFF_DOUBLINGS_MAX)
    longest = ELECTION_BACKOFF_BASE_MS * (1 << doublings)
    return state.rng.random() * min(longest, state.config.election_backoff_max_ms)


def _successor_backoff_ms(state: QuorumState, preferred: tuple[ReplicaKey, ...]) -> float:
    """0 for the first successor, doubling up to the maximum for the last and for all others."""
    longest = state.config.election_backoff_max_ms
    if state.key not in preferred:
        return longest
    position = preferred.index(state.key)
    return 0.0 if position == 0 else longest / (1 << (len(preferred) - 1 - position))
