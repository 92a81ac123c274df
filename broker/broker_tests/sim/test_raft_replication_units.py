"""Leader and follower in the quorum's state machine: fetches, commits, truncation, snapshots."""

from __future__ import annotations

import pytest

from broker_tests.sim.raft_units import (
    CONFIG,
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
from odradek_broker.raft.describe import describe
from odradek_broker.raft.errors import CommittedDataError
from odradek_broker.raft.leader import find_divergence
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
)
from odradek_broker.raft.quorum import step
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import (
    AdvanceLogStart,
    AppendRefused,
    ClientAppend,
    Commit,
    Flush,
    Flushed,
    LeaderChanged,
    ReceivedRequest,
    ReceivedResponse,
    Reply,
    ReplyWithRecords,
    Resign,
    Send,
    SnapshotCreated,
    Tick,
    TrimLog,
    TruncateLog,
)
from odradek_broker.raft.values import (
    Batch,
    LeaderAndEpoch,
    OffsetAndEpoch,
    SnapshotInfo,
)
from odradek_broker.raft.voters import VoterHistory
from odradek_protocol.error_codes import ErrorCode


def test_the_high_watermark_needs_a_majority_and_a_record_of_this_epoch() -> None:
    """1. 2 has what was before epoch 1 began: nothing is committed; 2. then all of it is."""
    state = leader_of_three()
    out = do(state, ReceivedRequest("t", fetch(2, 1, (0, 0))), 2010)
    assert isinstance(only(ReplyWithRecords, out), ReplyWithRecords)
    assert state.high_watermark == 0
    out = do(state, ReceivedRequest("t", fetch(2, 1, (3, 1))), 2011)
    assert only(Commit, out).high_watermark == 3
    reply = answer(out)
    assert isinstance(reply, FetchResponse)
    assert reply.high_watermark == 3


def test_a_fetch_waits_for_records_and_is_answered_once() -> None:
    state = leader_of_three()
    do(state, ReceivedRequest("a", fetch(2, 1, (3, 1))), 2010)
    assert not any(
        isinstance(i, Reply)
        for i in do(state, ReceivedRequest("b", fetch(2, 1, (3, 1), hw=3)), 2011)
    )
    out = do(state, ReceivedRequest("c", fetch(2, 1, (3, 1), hw=3)), 2012)
    assert only(Reply, out).ticket == "b", "a newer fetch of the same replica replaces it"
    out = do(state, ClientAppend(1, 1, b"x"), 2013)
    assert only(ReplyWithRecords, out).ticket == "c"
    do(state, ReceivedRequest("d", fetch(2, 1, (4, 1), hw=3)), 2014)
    assert only(Reply, do(state, Tick(), 2600)).ticket == "d", "its time is over"


def test_the_point_of_divergence_is_found_by_epoch() -> None:
    """The leader's log is 0–49 of epoch 1, 50–51 of epoch 4, then epoch 5."""
    log = LogView(VoterHistory.formatted_with(voter_set(1)))
    for batch in (Batch(0, 50, 1), Batch(50, 2, 4), Batch(52, 8, 5)):
        log.append(batch)
    assert find_divergence(log, OffsetAndEpoch(60, 5)) is None
    assert find_divergence(log, OffsetAndEpoch(51, 4)) is None
    assert find_divergence(log, OffsetAndEpoch(55, 4)) == OffsetAndEpoch(52, 4)
    assert find_divergence(log, OffsetAndEpoch(55, 3)) == OffsetAndEpoch(50, 1)
    assert find_divergence(log, OffsetAndEpoch(70, 5)) == OffsetAndEpoch(60, 5)


def test_a_leader_that_loses_its_majority_resigns() -> None:
    state = leader_of_three()
    do(state, ReceivedRequest("t", fetch(2, 1, (3, 1))), 2500)
    silent_ms = 2500 + CONFIG.check_quorum_ms
    out = do(state, Tick(), silent_ms - 1)
    assert not any(isinstance(i, LeaderChanged) for i in out)
    out = do(state, Tick(), silent_ms)
    assert only(LeaderChanged, out).leader == LeaderAndEpoch(None, 1)
    assert state.role is Role.RESIGNED


def test_a_leader_that_was_paused_refuses_appends() -> None:
    """SIGSTOP for a minute, then a write comes first: it is refused, not appended."""
    state = leader_of_three()
    out = do(state, ClientAppend(1, 1, b"x"), 62_000)
    assert only(AppendRefused, out).error is ErrorCode.not_leader_or_follower


def test_a_resigning_leader_names_the_best_successor_first() -> None:
    state = leader_of_three()
    do(state, ReceivedRequest("t", fetch(3, 1, (3, 1))), 2010)
    do(state, Resign(), 2011)
    out = do(state, Tick(), 2012)
    requests = [i.request for i in out if isinstance(i, Send)]
    assert isinstance(requests[0], EndQuorumEpochRequest)
    assert requests[0].preferred_candidates == (KEYS[3], KEYS[2])


def test_describe_lists_voters_and_observers() -> None:
    state = leader_of_three()
    do(state, ReceivedRequest("t", fetch(2, 1, (3, 1))), 2010)
    do(state, ReceivedRequest("t", fetch(4, 1, (0, 0))), 2020)
    status = describe(state, 2030)
    assert status is not None
    assert [(r.key.id, r.log_end_offset) for r in status.voters] == [(1, 3), (2, 3), (3, -1)]
    assert [(r.key.id, r.log_end_offset) for r in status.observers] == [(4, 0)]
    assert status.voters[1].last_fetch_age_ms == 20
    assert status.observers[0].caught_up_age_ms is None


def test_a_follower_fetches_again_only_when_what_it_has_is_durable() -> None:
    state, correlation_id = follower_of_two()
    response = FetchResponse(ErrorCode.none, state.leader, batches=(Batch(0, 3, 1, data=b"x"),))
    out = do(state, ReceivedResponse(2, correlation_id, response), 20)
    flush = only(Flush, out)
    assert not any(isinstance(i, Send) for i in out)
    request = only(Send, do(state, Flushed(flush.end_offset, flush.generation), 30)).request
    assert isinstance(request, FetchRequest)
    assert (request.fetch_offset, request.last_fetched_epoch) == (3, 1)


def test_a_late_answer_is_not_applied() -> None:
    """The bug that a probe found: 1 seed in 250 lost acknowledged data.

    1. a fetch times out and is sent again; 2. records come, are acknowledged;
    3. the answer to the first fetch says "truncate to 0": it must not.
    """
    state, first = follower_of_two()
    state.deadline_ms += 10_000  # this story is not about the fetch timeout
    do(state, Tick(), 10 + CONFIG.request_timeout_ms)
    second = only(Send, do(state, Tick(), 2100)).correlation_id
    assert second != first
    response = FetchResponse(ErrorCode.none, state.leader, batches=(Batch(0, 3, 1),))
    do(state, ReceivedResponse(2, second, response), 2110)
    late = FetchResponse(ErrorCode.none, state.leader, diverging=OffsetAndEpoch(0, 0))
    out = do(state, ReceivedResponse(2, first, late), 2120)
    assert not any(isinstance(i, TruncateLog) for i in out)
    assert state.log.end_offset == 3


def test_truncation_goes_to_the_newest_common_epoch() -> None:
    state = node(1, voter_set(1, 2, 3), batches=(Batch(0, 50, 1), Batch(50, 10, 3)))
    begin = BeginQuorumEpochRequest(KEYS[1], 2, 5, endpoints_of(2))
    sent = only(Send, do(state, ReceivedRequest("t", begin), 10))
    diverging = FetchResponse(ErrorCode.none, state.leader, diverging=OffsetAndEpoch(70, 2))
    out = do(state, ReceivedResponse(2, sent.correlation_id, diverging), 20)
    assert only(TruncateLog, out).end_offset == 50


def test_committed_records_are_never_truncated() -> None:
    state, correlation_id = follower_of_two()
    response = FetchResponse(
        ErrorCode.none, state.leader, high_watermark=3, batches=(Batch(0, 3, 1),)
    )
    do(state, ReceivedResponse(2, correlation_id, response), 20)
    sent = only(Send, do(state, Flushed(3, 0), 21))
    diverging = FetchResponse(ErrorCode.none, state.leader, diverging=OffsetAndEpoch(1, 0))
    with pytest.raises(CommittedDataError):
        step(state, ReceivedResponse(2, sent.correlation_id, diverging), 30)


def test_records_that_do_not_fit_are_not_applied() -> None:
    state, correlation_id = follower_of_two()
    response = FetchResponse(ErrorCode.none, state.leader, batches=(Batch(7, 3, 1),))
    do(state, ReceivedResponse(2, correlation_id, response), 20)
    assert state.log.end_offset == 0


def test_a_follower_behind_the_log_start_gets_the_snapshot() -> None:
    state = leader_of_three()
    do(state, ReceivedRequest("t", fetch(2, 1, (3, 1))), 2010)
    do(state, SnapshotCreated(SnapshotInfo(OffsetAndEpoch(3, 1), 10)), 2011)
    assert only(TrimLog, do(state, AdvanceLogStart(), 2012)).start_offset == 3
    reply = answer(do(state, ReceivedRequest("t", fetch(3, 1, (0, 0))), 2013))
    assert isinstance(reply, FetchResponse)
    assert reply.snapshot_id == OffsetAndEpoch(3, 1)
    gone = FetchSnapshotRequest(KEYS[3], 1, OffsetAndEpoch(2, 1), 0, 100)
    out = do(state, ReceivedRequest("t", gone), 2014)
    reply_to_gone = only(Reply, out).response
    assert reply_to_gone.leader.leader_id == 1
    assert getattr(reply_to_gone, "error", None) is ErrorCode.snapshot_not_found
