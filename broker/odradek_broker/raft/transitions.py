"""Role changes and the state that belongs to them. The only code that writes `state.role`."""

from __future__ import annotations

from odradek_broker.raft import log_writes
from odradek_broker.raft.errors import TwoLeadersError
from odradek_broker.raft.messages import FetchResponse, VoterChangeResponse, VoteRequest
from odradek_broker.raft.quorum_state import (
    Election,
    Following,
    Leadership,
    QuorumState,
    Resignation,
)
from odradek_broker.raft.states import Cause, Role, next_role
from odradek_broker.raft.types import BecameLeader, Instruction, LostLeadership, Reply, Send
from odradek_broker.raft.values import (
    BEFORE_THE_LOG,
    KRAFT_VERSION,
    ControlRecord,
    KRaftVersion,
    LeaderAndEpoch,
    LeaderChange,
    ReplicaKey,
    Voters,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import LeaderEpoch


def election_timeout_ms(state: QuorumState) -> float:
    """One to two election timeouts: nodes that wait together must not time out together."""
    return state.config.election_timeout_ms * (1.0 + state.rng.random())


def fetch_timeout_ms(state: QuorumState) -> float:
    """Up to a tenth longer than configured: voters that lose the leader at the same time must not
    stand for election within the same millisecond."""
    return state.config.fetch_timeout_ms * (1.0 + state.rng.random() / 10)


def adopt_epoch(
    state: QuorumState, epoch: LeaderEpoch, now_ms: float, out: list[Instruction]
) -> None:
    """A higher epoch exists: this node gives up its role.

    Its deadline stays, so that a node that keeps raising the epoch cannot keep this one from
    standing for election.
    """
    assert epoch > state.epoch
    fresh = state.role in (Role.LEADER, Role.RESIGNED)
    _change(state, Cause.HIGHER_EPOCH, out)
    state.epoch = epoch
    state.leader_id, state.leader_endpoints, state.voted = None, (), None
    if fresh or state.deadline_ms <= now_ms:
        state.deadline_ms = now_ms + election_timeout_ms(state)
    state.next_fetch_ms = now_ms + state.config.retry_backoff_ms


def follow(
    state: QuorumState, leader: LeaderAndEpoch, now_ms: float, out: list[Instruction]
) -> None:
    """Follows the leader of this node's epoch."""
    assert leader.leader_id not in (None, state.key.id)
    assert leader.epoch == state.epoch
    _change(state, Cause.LEADER_FOUND, out)
    state.leader_id, state.leader_endpoints = leader.leader_id, leader.endpoints
    _start_following(state, now_ms)


def learn_leader(
    state: QuorumState, leader: LeaderAndEpoch, now_ms: float, out: list[Instruction]
) -> None:
    """Applies another node's report about the leader, unless it is outdated."""
    if leader.epoch < state.epoch:
        return
    if leader.epoch > state.epoch:
        adopt_epoch(state, leader.epoch, now_ms, out)
    if leader.leader_id is None or leader.leader_id == state.leader_id:
        return
    if leader.leader_id == state.key.id:
        return  # this node led that epoch with a disk that it lost: the epoch has no leader
    if state.leader_id is not None:
        raise TwoLeadersError(
            f"epoch {state.epoch} has leaders {state.leader_id} and {leader.leader_id}"
        )
    follow(state, leader, now_ms, out)


def ask_for_pre_votes(
    state: QuorumState, cause: Cause, now_ms: float, out: list[Instruction]
) -> None:
    """Starts a round of pre-votes; the epoch is raised only if a majority grants them."""
    _change(state, cause, out)
    election = _start_election(state, now_ms, out, pre_vote=True)
    if len(election.votes) >= state.voters.majority:
        stand_for_election(state, now_ms, out)


def stand_for_election(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """A majority granted pre-votes: raises the epoch and asks for votes."""
    _change(state, Cause.PRE_VOTES_WON, out)
    state.epoch += 1
    state.leader_id, state.leader_endpoints, state.voted = None, (), state.key
    state.election_retries += 1
    election = _start_election(state, now_ms, out, pre_vote=False)
    if len(election.votes) >= state.voters.majority:
        lead(state, now_ms, out)


def lead(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """A majority voted for this node. Its first record allows older ones to be committed."""
    assert state.election is not None
    granting = state.election.granted()
    _change(state, Cause.VOTES_WON, out)
    state.leader_id, state.leader_endpoints = state.key.id, state.endpoints
    state.election_retries = 0
    state.leadership = Leadership(
        since_ms=now_ms,
        epoch_start_offset=state.log.end_offset,
        begin_epoch_at_ms=now_ms,
    )
    out.append(BecameLeader(state.epoch, state.log.end_offset))
    records: list[ControlRecord] = [LeaderChange(state.key.id, state.voters.ids, granting)]
    newest = state.log.voters.newest
    mine = newest.voters.get(state.key.id) if state.is_voter else None
    if newest.offset == BEFORE_THE_LOG or (mine and mine.endpoints != state.endpoints):
        # The same voters, written for the first time or with new addresses of this node. No
        # majority changes, so there is no commit to wait for.
        updated = newest.voters.with_updated(state.as_voter)
        records += [KRaftVersion(KRAFT_VERSION), Voters(updated)]
    log_writes.append_control(state, tuple(records), out)


def give_up_election(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """No majority: back to the role before the election."""
    if state.role is Role.CANDIDATE:
        ask_for_pre_votes(state, Cause.VOTES_LOST, now_ms, out)
    elif state.leader_id is not None:
        _change(state, Cause.PRE_VOTES_LOST_TO_LEADER, out)
        _start_following(state, now_ms)
    else:
        _change(state, Cause.PRE_VOTES_LOST, out)
        state.deadline_ms = now_ms + election_timeout_ms(state)
        state.next_fetch_ms = now_ms


def grant_vote(
    state: QuorumState, candidate: ReplicaKey, now_ms: float, out: list[Instruction]
) -> None:
    if state.voted == candidate:
        return  # asked again
    if state.role is Role.PROSPECTIVE:
        election, deadline_ms = state.election, state.deadline_ms
        _change(state, Cause.VOTE_GRANTED, out)
        state.election, state.deadline_ms = election, deadline_ms
    else:
        _change(state, Cause.VOTE_GRANTED, out)
        state.deadline_ms = now_ms + election_timeout_ms(state)
    state.voted = candidate


def resign(
    state: QuorumState,
    preferred: tuple[ReplicaKey, ...],
    now_ms: float,
    out: list[Instruction],
) -> None:
    """Stops leading and sends EndQuorumEpoch, so that a successor stands at once."""
    _change(state, Cause.RESIGN, out)
    state.deadline_ms = now_ms + election_timeout_ms(state)
    unacknowledged = [voter.key.id for voter in state.other_voters()]
    state.resignation = Resignation(preferred, unacknowledged, send_at_ms=now_ms)


def end_resignation(state: QuorumState, now_ms: float, out: list[Instruction]) -> None:
    """This epoch had its leader, this node: it waits for the next epoch."""
    _change(state, Cause.RESIGNATION_OVER, out)
    state.epoch += 1
    state.leader_id, state.leader_endpoints, state.voted = None, (), None
    alone = state.voters.keys == (state.key,)  # no other voter to wait for
    state.deadline_ms = now_ms if alone else now_ms + election_timeout_ms(state)


def _change(state: QuorumState, cause: Cause, out: list[Instruction]) -> None:
    target = next_role(state.role, cause, may_stand=state.may_stand)
    if state.leadership is not None:
        _close_leadership(state, state.leadership, out)
    state.role = target
    state.election = state.following = state.resignation = state.fetch = None


def _close_leadership(state: QuorumState, leadership: Leadership, out: list[Instruction]) -> None:
    """Replies to all requests that wait for this leader."""
    out.append(LostLeadership(state.epoch))
    unknown = LeaderAndEpoch(None, state.epoch)
    error = ErrorCode.not_leader_or_follower
    for waiting in leadership.waiting.values():
        out.append(Reply(waiting.ticket, FetchResponse(error, unknown)))
    if leadership.voter_change is not None:
        answer = VoterChangeResponse(error, "the leader changed before the commit", unknown)
        out.append(Reply(leadership.voter_change.ticket, answer))
    state.leadership = None


def _start_following(state: QuorumState, now_ms: float) -> None:
    state.following = Following()
    state.deadline_ms = now_ms + fetch_timeout_ms(state)
    state.next_fetch_ms = now_ms
    state.election_retries = 0


def _start_election(
    state: QuorumState, now_ms: float, out: list[Instruction], *, pre_vote: bool
) -> Election:
    correlation_id = state.correlation_id()
    election = Election(correlation_id, votes={state.key.id: True} if state.is_voter else {})
    state.election = election
    state.deadline_ms = now_ms + election_timeout_ms(state)
    for voter in state.other_voters():
        request = VoteRequest(
            voter=voter.key,
            candidate=state.key,
            epoch=state.epoch,
            last_epoch=state.log.last_epoch,
            last_epoch_end_offset=state.log.end_offset,
            pre_vote=pre_vote,
        )
        out.append(Send(voter.key.id, correlation_id, request))
    return election
