"""The quorum's state machine step by step: votes, changes of voters, and its values."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.sim.raft_units import (
    KEYS,
    answer,
    do,
    endpoints_of,
    fetch,
    follower_of_two,
    leader_of_three,
    node,
    only,
    voter_set,
)
from odradek_broker.raft.errors import IllegalTransitionError
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    AddVoterRequest,
    EndQuorumEpochRequest,
    FetchResponse,
    RemoveVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from odradek_broker.raft.quorum import next_deadline_ms
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.states import TRANSITIONS, Cause, Role, next_role
from odradek_broker.raft.types import (
    AppendBatches,
    AppendRefused,
    BecameLeader,
    ClientAppend,
    Commit,
    Flush,
    Flushed,
    LeaderChanged,
    PersistVote,
    ReceivedRequest,
    ReceivedResponse,
    Reply,
    Send,
    Tick,
)
from odradek_broker.raft.values import (
    Batch,
    KRaftVersion,
    LeaderAndEpoch,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    SnapshotInfo,
    Voters,
)
from odradek_broker.raft.vote_state import VoteState
from odradek_broker.raft.voters import Voter, VoterHistory
from odradek_protocol.error_codes import ErrorCode

# ---------------------------------------------------------------- a quorum of one


def test_a_single_voter_leads_at_once() -> None:
    """A laptop's broker must not wait for an election timeout."""
    state = node(1, voter_set(1))
    assert next_deadline_ms(state) == 0
    out = do(state, Tick(), 0)
    assert out[0] == PersistVote(VoteState(1, leader_id=1, voted=KEYS[1]))
    assert only(BecameLeader, out) == BecameLeader(1, 0)
    records = only(AppendBatches, out).batches[0].control
    assert records == (
        LeaderChange(1, (1,), (1,)),
        KRaftVersion(1),
        Voters(voter_set(1)),
    )
    assert only(LeaderChanged, out).leader.leader_id == 1
    assert state.high_watermark == 0, "not before the flush"
    flush = only(Flush, out)
    out = do(state, Flushed(flush.end_offset, flush.generation), 5)
    assert only(Commit, out).high_watermark == 3
    out = do(state, ClientAppend(1, 2, b"x"), 6)
    assert only(AppendBatches, out).batches == (Batch(3, 2, 1, data=b"x"),)


def test_an_append_of_an_older_leadership_is_refused() -> None:
    state = leader_of_three()
    out = do(state, ClientAppend(0, 1, b"x"), 2010)
    assert only(AppendRefused, out).error is ErrorCode.not_leader_or_follower
    assert state.log.end_offset == 3


# ---------------------------------------------------------------- votes


def test_a_vote_is_on_disk_before_the_answer_leaves_and_is_given_once() -> None:
    state = node(1, voter_set(1, 2, 3))
    request = VoteRequest(KEYS[1], KEYS[2], 4, 0, 0, pre_vote=False)
    out = do(state, ReceivedRequest("t", request), 10)
    assert out[0] == PersistVote(VoteState(4, None, KEYS[2]))
    assert answer(out) == VoteResponse(ErrorCode.none, LeaderAndEpoch(None, 4), granted=True)
    other = VoteRequest(KEYS[1], KEYS[3], 4, 0, 0, pre_vote=False)
    reply = answer(do(state, ReceivedRequest("t", other), 11))
    assert reply == VoteResponse(ErrorCode.none, LeaderAndEpoch(None, 4), granted=False)
    reply = answer(do(state, ReceivedRequest("t", request), 12))
    assert reply == VoteResponse(ErrorCode.none, LeaderAndEpoch(None, 4), granted=True)


def test_a_vote_is_remembered_across_a_restart() -> None:
    state = node(1, voter_set(1, 2, 3), vote=VoteState(4, None, KEYS[2]))
    assert state.role is Role.VOTED
    other = VoteRequest(KEYS[1], KEYS[3], 4, 0, 0, pre_vote=False)
    reply = answer(do(state, ReceivedRequest("t", other), 11))
    assert isinstance(reply, VoteResponse)
    assert not reply.granted


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "granted"),
    [(2, 5, True), (2, 6, True), (3, 1, True), (2, 4, False), (1, 99, False)],
)
def test_only_a_log_that_is_not_behind_gets_a_vote(
    last_epoch: int, end_offset: int, granted: bool
) -> None:
    state = node(1, voter_set(1, 2, 3), batches=(Batch(0, 5, 2),))
    request = VoteRequest(KEYS[1], KEYS[2], 9, last_epoch, end_offset, pre_vote=False)
    reply = answer(do(state, ReceivedRequest("t", request), 10))
    assert isinstance(reply, VoteResponse)
    assert reply.granted is granted


def test_a_vote_for_the_disk_that_was_here_before_is_refused() -> None:
    state = node(1, voter_set(1, 2, 3))
    old = ReplicaKey(1, UUID(int=7))
    request = VoteRequest(old, KEYS[2], 4, 0, 0, pre_vote=False)
    reply = answer(do(state, ReceivedRequest("t", request), 10))
    assert reply == VoteResponse(ErrorCode.invalid_voter_key, LeaderAndEpoch(None, 4))
    assert state.voted is None


def test_a_pre_vote_changes_nothing_and_is_refused_while_the_leader_answers() -> None:
    state, correlation_id = follower_of_two()
    request = VoteRequest(KEYS[1], KEYS[3], 1, 0, 0, pre_vote=True)
    reply = answer(do(state, ReceivedRequest("t", request), 20))
    assert isinstance(reply, VoteResponse)
    assert reply.granted, "the leader has not answered yet"
    fetched = FetchResponse(ErrorCode.none, state.leader)
    do(state, ReceivedResponse(2, correlation_id, fetched), 30)
    out = do(state, ReceivedRequest("t", request), 40)
    reply = answer(out)
    assert isinstance(reply, VoteResponse)
    assert not reply.granted
    assert not any(isinstance(i, PersistVote) for i in out)


def test_a_leader_that_restarts_does_not_lead_its_epoch_again() -> None:
    """1. it comes back as Resigned and says so; 2. after a while it waits for a newer epoch."""
    state = node(1, voter_set(1, 2, 3), vote=VoteState(7, 1, KEYS[1]))
    assert state.role is Role.RESIGNED
    out = do(state, Tick(), 1)
    told = [
        i.to for i in out if isinstance(i, Send) and isinstance(i.request, EndQuorumEpochRequest)
    ]
    assert told == [2, 3]
    do(state, Tick(), 5000)
    assert (state.role, state.epoch) == (Role.UNATTACHED, 8)


def test_the_preferred_successor_asks_for_votes_at_once() -> None:
    state, _ = follower_of_two()
    end = EndQuorumEpochRequest(2, 1, (KEYS[1], KEYS[3]), endpoints_of(2))
    do(state, ReceivedRequest("t", end), 20)
    assert next_deadline_ms(state) == 20
    do(state, Tick(), 20)
    assert state.role is Role.PROSPECTIVE


# ---------------------------------------------------------------- the leader


# ---------------------------------------------------------------- the follower


# ---------------------------------------------------------------- snapshots


# ---------------------------------------------------------------- voter changes


def change(
    state: QuorumState, request: AddVoterRequest | RemoveVoterRequest, now_ms: float
) -> ErrorCode:
    reply = answer(do(state, ReceivedRequest("t", request), now_ms))
    assert isinstance(reply, VoterChangeResponse)
    return reply.error


def test_voters_change_one_at_a_time_and_only_if_it_can_be_committed() -> None:
    state = leader_of_three()
    add_four = AddVoterRequest(Voter(KEYS[4]), timeout_ms=1000)
    assert change(state, add_four, 2005) is ErrorCode.request_timed_out, "nothing committed yet"
    do(state, ReceivedRequest("f", fetch(2, 1, (3, 1))), 2010)
    assert change(state, add_four, 2011) is ErrorCode.request_timed_out, "4 is not caught up"
    do(state, ReceivedRequest("f", fetch(4, 1, (3, 1))), 2012)
    add_other_two = AddVoterRequest(Voter(ReplicaKey(2, UUID(int=9))), timeout_ms=1000)
    assert change(state, add_other_two, 2013) is ErrorCode.duplicate_voter
    remove_five = RemoveVoterRequest(KEYS[5])
    assert change(state, remove_five, 2013) is ErrorCode.voter_not_found
    out = do(state, ReceivedRequest("t", add_four), 2014)
    assert only(AppendBatches, out).batches[0].control == (
        Voters(voter_set(1, 2, 3).with_voter(Voter(KEYS[4]))),
    )
    assert len(state.voters) == 4, "it counts at once"
    assert change(state, RemoveVoterRequest(KEYS[3]), 2015) is ErrorCode.request_timed_out
    do(state, Flushed(4, 0), 2016)
    do(state, ReceivedRequest("f", fetch(2, 1, (4, 1))), 2017)
    out = do(state, ReceivedRequest("f", fetch(4, 1, (4, 1))), 2018)
    done = [i.response for i in out if isinstance(i, Reply) and i.ticket == "t"]
    assert [r.error for r in done if isinstance(r, VoterChangeResponse)] == [ErrorCode.none]


def test_a_voter_is_not_removed_if_the_remaining_ones_are_silent() -> None:
    """Voters 1, 2, 3; 3 is dead. Without 2, node 1 and a dead node would be the quorum."""
    state = leader_of_three()
    do(state, ReceivedRequest("f", fetch(2, 1, (3, 1))), 2010)
    assert change(state, RemoveVoterRequest(KEYS[2]), 2011) is ErrorCode.request_timed_out
    assert len(state.voters) == 3


def test_the_last_voter_stays() -> None:
    state = node(1, voter_set(1))
    flush = only(Flush, do(state, Tick(), 0))
    do(state, Flushed(flush.end_offset, flush.generation), 1)
    assert change(state, RemoveVoterRequest(KEYS[1]), 2) is ErrorCode.invalid_request


# ---------------------------------------------------------------- values


def test_every_change_that_is_not_in_the_table_is_refused() -> None:
    for role in Role:
        for cause in Cause:
            if (role, cause) in TRANSITIONS:
                assert next_role(role, cause, may_stand=True) is TRANSITIONS[role, cause]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_role(role, cause, may_stand=True)
    with pytest.raises(IllegalTransitionError, match="observer"):
        next_role(Role.FOLLOWER, Cause.FETCH_TIMEOUT, may_stand=False)


def test_vote_state_is_kafkas_json() -> None:
    text = (
        '{"leaderId":2,"leaderEpoch":7,"votedId":-1,'
        '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert VoteState.from_json(text) == VoteState(7, 2, None)
    assert VoteState(7, 2, None).to_json() == text


@given(
    st.integers(0, 2**31 - 1),
    st.none() | st.integers(0, 99),
    st.none() | st.builds(ReplicaKey, st.integers(0, 99), st.uuids()),
)
def test_vote_state_round_trip(epoch: int, leader_id: int | None, voted: ReplicaKey | None) -> None:
    vote = VoteState(epoch, leader_id, voted)
    assert VoteState.from_json(vote.to_json()) == vote


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"leaderId":"x"}', "null"])
def test_a_broken_vote_file_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="quorum-state"):
        VoteState.from_json(text)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=12), st.data())
def test_log_view_agrees_with_a_list_of_epochs(
    batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The view knows epochs by their starts; a plain list knows the epoch of every record."""
    view = LogView(VoterHistory.formatted_with(voter_set(1)))
    records: list[int] = []
    epoch = 1
    for count, more in batches:
        epoch += more
        view.append(Batch(len(records), count, epoch))
        records += [epoch] * count
    cut = data.draw(st.integers(0, len(records)))
    view.truncate_to(cut)
    del records[cut:]
    view.validate()
    assert view.end == OffsetAndEpoch(len(records), records[-1] if records else 0)
    start = data.draw(st.integers(0, len(records)))
    if start > 0:
        view.snapshot = SnapshotInfo(OffsetAndEpoch(start, records[start - 1]), 1)
        view.trim_to_snapshot()
        view.validate()
    for offset in range(max(1, start), len(records) + 1):
        assert view.epoch_before(offset) == records[offset - 1]
        assert view.contains(OffsetAndEpoch(offset, records[offset - 1]))
    for asked in range(max(1, view.start.epoch), epoch + 2):
        below = [e for e in records if e <= asked]
        expected = OffsetAndEpoch(len(below), below[-1]) if below else view.start
        assert view.end_of_epoch(asked) == expected
