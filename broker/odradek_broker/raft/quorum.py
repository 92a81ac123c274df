"""`step`: the one entry point of the quorum state machine. See the package's docstring.

An event first lets time pass (a process that was paused for a minute must not act on outdated
state), then is handled; then the requests that the new state needs are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from odradek_broker.raft import election, follower, leader, transitions, voter_changes
from odradek_broker.raft.config import QuorumConfig
from odradek_broker.raft.log_view import LogView
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
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from odradek_broker.raft.quorum_state import (
    Following,
    QuorumState,
    Resignation,
)
from odradek_broker.raft.states import NOMINEES, Cause, Role
from odradek_broker.raft.types import (
    AdvanceLogStart,
    ClientAppend,
    Event,
    Flushed,
    Instruction,
    LeaderChanged,
    PersistVote,
    ReceivedRequest,
    ReceivedResponse,
    RequestFailed,
    Resign,
    SnapshotCreated,
    SnapshotLoaded,
    Tick,
    TrimLog,
    VotersChanged,
)
from odradek_broker.raft.values import NodeId, RaftEndpoint, ReplicaKey
from odradek_broker.raft.vote_state import VoteState

NEVER = float("inf")


class Persisted(NamedTuple):
    """The state on a node's disk when it starts."""

    log: LogView
    vote: VoteState | None  # None: it has never voted, and has seen no epoch


def start_quorum(
    key: ReplicaKey,
    *,
    endpoints: tuple[RaftEndpoint, ...],
    config: QuorumConfig,
    persisted: Persisted,
    bootstrap: tuple[NodeId, ...],
    rng: Random,
    now_ms: float,
) -> QuorumState:
    """The state of a node that has just started, from what is on its disk."""
    log = persisted.log
    remembered = persisted.vote or VoteState()
    if remembered.epoch < log.last_epoch:
        remembered = VoteState(log.last_epoch)
    state = QuorumState(
        key=key,
        endpoints=endpoints,
        config=config,
        rng=rng,
        bootstrap=bootstrap,
        log=log,
        epoch=remembered.epoch,
        voted=remembered.voted,
        persisted=remembered,
        high_watermark=log.snapshot.id.offset if log.snapshot else 0,
        next_fetch_ms=now_ms,
    )
    state.deadline_ms = now_ms + transitions.election_timeout_ms(state)
    _resume_role(state, remembered.leader_id, now_ms)
    return state


def _resume_role(state: QuorumState, leader_id: NodeId | None, now_ms: float) -> None:
    if leader_id == state.key.id:
        # It led this epoch and may have lost unflushed records of it: it must not write other
        # records with the same offsets and epoch.
        state.role, state.leader_id = Role.RESIGNED, leader_id
        state.leader_endpoints = state.endpoints
        others = [voter.key.id for voter in state.other_voters()]
        state.resignation = Resignation((), others, send_at_ms=now_ms)
    elif leader_id is not None and state.voters.get(leader_id) is not None:
        state.role, state.leader_id = Role.FOLLOWER, leader_id
        state.leader_endpoints = state.voters.endpoints_of(leader_id)
        state.following = Following()
        state.deadline_ms = now_ms + state.config.fetch_timeout_ms
    elif state.voted is not None:
        state.role = Role.VOTED
    if state.voters.keys == (state.key,):
        state.deadline_ms = now_ms  # the only voter: stand at once


def step(state: QuorumState, event: Event, now_ms: float) -> list[Instruction]:
    """Changes `state` by one event; returns the instructions for the driver, in order."""
    out: list[Instruction] = []
    leader_before = state.leader
    voters_before = state.log.voters.newest
    _pass_time(state, now_ms, out)
    _handle(state, event, now_ms, out)
    follower.fetch_if_due(state, now_ms, out)
    follower.update_own_voter(state, now_ms, out)
    if state.log.voters.newest is not voters_before:
        out.append(VotersChanged(state.log.voters.newest))
    if state.leader != leader_before:
        out.append(LeaderChanged(state.leader))
    vote = state.vote_state()
    if vote != state.persisted:
        state.persisted = vote
        out.insert(0, PersistVote(vote))
    return out


def next_deadline_ms(state: QuorumState) -> float:
    """When `Tick` is due at the latest; infinity if only events matter."""
    due = NEVER
    if state.role is Role.LEADER:
        leadership = state.leadership
        assert leadership is not None
        due = min(leadership.begin_epoch_at_ms, leader.check_quorum_deadline_ms(state))
        for waiting in leadership.waiting.values():
            due = min(due, waiting.deadline_ms)
        if leadership.voter_change is not None:
            due = min(due, leadership.voter_change.deadline_ms)
        return due
    if state.role is Role.RESIGNED:
        assert state.resignation is not None
        return min(state.deadline_ms, state.resignation.send_at_ms)
    if state.may_stand:
        due = state.deadline_ms
    if state.fetch is not None:
        due = min(due, state.fetch.deadline_ms)
    elif follower.wants_fetch(state):
        due = min(due, state.next_fetch_ms)
    return due


def _pass_time(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    role = state.role
    if role is Role.LEADER:
        _pass_time_as_leader(state, now_ms, out)
    elif role is Role.RESIGNED:
        assert state.resignation is not None
        if now_ms >= state.deadline_ms:
            transitions.end_resignation(state, now_ms, out)
        elif now_ms >= state.resignation.send_at_ms:
            election.announce_resignation(state, now_ms, out)
    elif role in NOMINEES:
        if now_ms >= state.deadline_ms:
            transitions.give_up_election(state, now_ms, out)
    else:
        if state.fetch is not None and now_ms >= state.fetch.deadline_ms:
            follower.give_up_fetch(state, now_ms)
        if now_ms >= state.deadline_ms and state.may_stand:
            follows = role is Role.FOLLOWER
            cause = Cause.FETCH_TIMEOUT if follows else Cause.ELECTION_TIMEOUT
            transitions.ask_for_pre_votes(state, cause, now_ms, out)


def _pass_time_as_leader(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    leadership = state.leadership
    assert leadership is not None
    if now_ms >= leader.check_quorum_deadline_ms(state):
        transitions.resign(state, leader.successors(state), now_ms, out)
        return
    voter_changes.expire(state, now_ms, out)
    if any(waiting.deadline_ms <= now_ms for waiting in leadership.waiting.values()):
        leader.answer_waiting(state, now_ms, out)
    if now_ms >= leadership.begin_epoch_at_ms:
        leader.call_silent_voters(state, now_ms, out)


def _handle(state: QuorumState, event: Event, now_ms: float, out: list[Instruction]) -> None:
    match event:
        case ReceivedRequest():
            handle = _REQUESTS[type(event.request)]
            handle(state, event.ticket, event.request, now_ms, out)
        case ReceivedResponse():
            _on_response(state, event, now_ms, out)
        case Tick():
            pass  # handled by _pass_time
        case Flushed():
            _on_flushed(state, event, now_ms, out)
        case ClientAppend():
            leader.append_from_client(state, event, now_ms, out)
        case RequestFailed():
            if state.fetch is not None and state.fetch.correlation_id == event.correlation_id:
                if event.refused:
                    follower.look_for_another_leader(state, state.fetch, now_ms)
                follower.give_up_fetch(state, now_ms)
        case SnapshotCreated():
            _on_snapshot_created(state, event)
        case AdvanceLogStart():
            _on_advance_log_start(state, out)
        case SnapshotLoaded():
            follower.on_snapshot_loaded(state, event, now_ms, out)
        case Resign():
            if state.role is Role.LEADER:
                transitions.resign(state, leader.successors(state), now_ms, out)


def _on_response(
    state: QuorumState, event: ReceivedResponse, now_ms: float, out: list[Instruction]
) -> None:
    source, correlation_id, response = event.source, event.correlation_id, event.response
    match response:
        case FetchResponse():
            follower.on_fetch_response(state, source, correlation_id, response, now_ms, out)
        case FetchSnapshotResponse():
            follower.on_fetch_snapshot_response(
                state, source, correlation_id, response, now_ms, out
            )
        case VoteResponse():
            election.on_vote_response(state, source, correlation_id, response, now_ms, out)
        case EndQuorumEpochResponse():
            election.on_end_quorum_epoch_response(state, source, response, now_ms, out)
        case BeginQuorumEpochResponse() | VoterChangeResponse():
            transitions.learn_leader(state, response.leader, now_ms, out)


def _on_flushed(state: QuorumState, event: Flushed, now_ms: float, out: list[Instruction]) -> None:
    if event.generation != state.log.generation:
        return
    state.log.flushed_offset = max(state.log.flushed_offset, event.end_offset)
    if state.role is Role.LEADER:
        leader.advance_high_watermark(state, now_ms, out)


def _on_snapshot_created(state: QuorumState, event: SnapshotCreated) -> None:
    newest = state.log.snapshot
    if newest is not None and newest.id.offset >= event.snapshot.id.offset:
        return  # a newer one was loaded while it was being written
    assert event.snapshot.id.offset <= state.high_watermark, "not committed"
    assert state.log.contains(event.snapshot.id)
    state.log.snapshot = event.snapshot


def _on_advance_log_start(state: QuorumState, out: list[Instruction]) -> None:
    snapshot = state.log.snapshot
    if snapshot is not None and snapshot.id.offset > state.log.start.offset:
        state.log.trim_to_snapshot()
        out.append(TrimLog(snapshot.id.offset))


_REQUESTS: dict[type, Callable[[QuorumState, object, Any, float, list[Instruction]], None]] = {
    VoteRequest: election.on_vote_request,
    BeginQuorumEpochRequest: election.on_begin_quorum_epoch,
    EndQuorumEpochRequest: election.on_end_quorum_epoch,
    FetchRequest: leader.on_fetch,
    FetchSnapshotRequest: leader.on_fetch_snapshot,
    AddVoterRequest: voter_changes.on_voter_change,
    RemoveVoterRequest: voter_changes.on_voter_change,
    UpdateVoterRequest: voter_changes.on_voter_change,
}
