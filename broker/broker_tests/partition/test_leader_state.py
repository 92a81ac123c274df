"""The leader's side, one rule at a time: ISR proposals, the high watermark, refusals."""

import pytest

from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.partition.leader_events import (
    AdvanceHighWatermark,
    CheckIsr,
    FollowerFetched,
    FollowerStopped,
    Instructions,
    MinIsrChanged,
    PartitionChanged,
    Proposal,
    ProposalAnswered,
    ProposalLost,
    Propose,
    Written,
)
from odradek_broker.partition.leader_state import LOST_PROPOSAL_MS, LeaderState, Peers, step
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId

ONE, TWO, THREE = (BrokerId(i) for i in (1, 2, 3))
ALL = (ONE, TWO, THREE)
LAG_MS = 1000.0


def leader(
    isr: tuple[BrokerId, ...] = ALL, *, start: int = 10, high_watermark: int = 10, min_isr: int = 1
) -> LeaderState:
    peers = Peers(
        ONE,
        broker_epoch=101,
        lag_time_max_ms=LAG_MS,
        registered={ONE: 101, TWO: 102, THREE: 103},
        eligible=frozenset(ALL),
    )
    registration = PartitionRegistration(
        ALL, isr, (), (), ONE, leader_epoch=5, partition_epoch=7, directories=()
    )
    return LeaderState(
        peers,
        registration,
        epoch_start_offset=start,
        log_end_offset=start,
        high_watermark=high_watermark,
        min_insync_replicas=min_isr,
        now_ms=0,
    )


def fetched(
    state: LeaderState, replica: BrokerId, offset: int, now_ms: float = 0, epoch: int | None = None
) -> Instructions:
    broker_epoch = 100 + replica if epoch is None else epoch
    event = FollowerFetched(replica, broker_epoch, offset, 0, state.log_end_offset)
    instructions = step(state, event, now_ms)
    state.validate()
    return instructions


def test_the_high_watermark_is_what_all_in_sync_replicas_have() -> None:
    state = leader()
    assert step(state, Written(15), 0) == ()
    assert fetched(state, TWO, 15) == ()  # three has not fetched in this epoch
    assert fetched(state, THREE, 12) == (AdvanceHighWatermark(12),)
    assert fetched(state, THREE, 15) == (AdvanceHighWatermark(15),)
    assert fetched(state, THREE, 11) == ()  # with less: the watermark does not go back


def test_alone_in_the_isr_written_records_are_committed() -> None:
    state = leader((ONE,))
    assert step(state, Written(12), 0) == (AdvanceHighWatermark(12),)
    assert step(state, Written(12), 0) == ()


def test_a_laggard_leaves_only_when_the_controller_agrees() -> None:
    state = leader()
    step(state, Written(15), 0)
    fetched(state, TWO, 15, 10)
    assert step(state, CheckIsr(), LAG_MS) == ()
    proposal = Proposal(5, 7, ((ONE, 101), (TWO, 102)))
    assert step(state, CheckIsr(), LAG_MS + 1) == (Propose(proposal),)
    assert state.maximal_isr == set(ALL)
    assert step(state, CheckIsr(), LAG_MS + 1) == ()  # one proposal at a time
    assert step(state, Written(16), LAG_MS + 1) == ()
    answer = ProposalAnswered(proposal, ErrorCode.none, 5, 8, (ONE, TWO))
    assert step(state, answer, LAG_MS + 2) == (AdvanceHighWatermark(15),)
    assert (state.isr, state.partition_epoch, state.pending) == ((ONE, TWO), 8, None)


def test_a_follower_that_keeps_reading_to_where_the_end_was_stays_in_sync() -> None:
    """With small writes all the time it never reaches the end, but stays close to it."""
    state = leader((ONE, TWO))
    for moment in range(1, 50):
        step(state, Written(10 + moment * 2), moment * 100.0)
        fetched(state, TWO, 10 + moment * 2 - 2, moment * 100.0)
        assert TWO in state.isr
        assert not any(isinstance(i, Propose) for i in step(state, CheckIsr(), moment * 100.0))


def test_a_follower_that_was_idle_lags_from_the_next_write_on() -> None:
    state = leader((ONE, TWO))
    fetched(state, TWO, 10, 0)
    step(state, Written(11), 50 * LAG_MS)
    assert step(state, CheckIsr(), 51 * LAG_MS) == ()
    assert step(state, CheckIsr(), 51 * LAG_MS + 1) != ()


def test_a_replica_joins_when_it_reached_high_watermark_and_epoch_start() -> None:
    state = leader((ONE,), start=20, high_watermark=10)
    step(state, Written(30), 0)
    assert state.high_watermark == 30
    assert fetched(state, TWO, 29) == ()
    proposal = Proposal(5, 7, ((ONE, 101), (TWO, 102)))
    assert fetched(state, TWO, 30) == (Propose(proposal),)
    assert step(state, Written(31), 0) == (), "it counts from the moment it is proposed"


def test_the_high_watermark_may_be_old_but_the_epoch_start_is_not() -> None:
    """Broker 2 leads since offset 20 and has the high watermark 10; 20 may be committed."""
    state = leader((ONE, TWO), start=20, high_watermark=10)
    assert fetched(state, THREE, 15) == ()
    assert fetched(state, THREE, 19) == ()
    assert any(isinstance(i, Propose) for i in fetched(state, THREE, 20))


@pytest.mark.parametrize(
    ("registered", "eligible"),
    [
        pytest.param({ONE: 101, TWO: 102}, {ONE}, id="fenced or stopping"),
        pytest.param({ONE: 101, TWO: 99}, {ONE, TWO}, id="its restart is not known yet"),
        pytest.param({ONE: 101}, {ONE, TWO}, id="unknown"),
    ],
)
def test_only_a_live_registration_of_the_same_incarnation_joins(
    registered: dict[BrokerId, int], eligible: set[BrokerId]
) -> None:
    state = leader((ONE,))
    state.peers.registered, state.peers.eligible = registered, frozenset(eligible)
    assert fetched(state, TWO, 10) == ()
    state.peers.registered, state.peers.eligible = {ONE: 101, TWO: 102}, frozenset({ONE, TWO})
    assert [type(i) for i in step(state, CheckIsr(), 0)] == [Propose]


def test_a_fetch_from_before_a_restart_is_refused() -> None:
    state = leader()
    fetched(state, TWO, 10)
    with pytest.raises(KafkaError) as refused:
        fetched(state, TWO, 10, epoch=90)
    assert refused.value.code is ErrorCode.not_leader_or_follower
    with pytest.raises(KafkaError) as refused:
        fetched(state, BrokerId(9), 10)
    assert refused.value.code is ErrorCode.unknown_leader_epoch


def test_two_that_wait_are_proposed_together_when_the_answer_comes() -> None:
    state = leader((ONE,))
    step(state, Written(12), 0)
    (proposed,) = fetched(state, TWO, 12)
    assert isinstance(proposed, Propose)
    assert fetched(state, THREE, 12) == ()
    answer = ProposalAnswered(proposed.proposal, ErrorCode.none, 5, 8, (ONE, TWO))
    instructions = step(state, answer, 0)
    assert instructions == (Propose(Proposal(5, 8, ((ONE, 101), (TWO, 102), (THREE, 103)))),)


def pending_expansion() -> tuple[LeaderState, Proposal]:
    state = leader((ONE, TWO))
    (proposed,) = fetched(state, THREE, 10)
    assert isinstance(proposed, Propose)
    return state, proposed.proposal


@pytest.mark.parametrize("error", [ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted])
def test_a_proposal_that_was_surely_not_carried_out_is_undone(error: ErrorCode) -> None:
    state, proposal = pending_expansion()
    step(state, Written(12), 0)
    fetched(state, TWO, 12)
    assert step(state, ProposalAnswered(proposal, error), 0) == ()  # three is about to join
    assert state.maximal_isr == {ONE, TWO}
    state.peers.eligible = frozenset({ONE, TWO})
    assert step(state, Written(13), 0) == (AdvanceHighWatermark(12),)


def test_after_a_lost_proposal_a_refusal_is_not_final_at_once() -> None:
    """1. The proposal is sent, the answer lost. 2. It is sent again, refused. 3. The first
    one arrives late and is accepted. If 2 undid the proposal, broker 3 would be in the ISR without
    the records that were committed between 2 and 3."""
    state, proposal = pending_expansion()
    again = (Propose(proposal, retry=True),)
    assert step(state, ProposalLost(proposal), 100) == again
    refused = ProposalAnswered(proposal, ErrorCode.ineligible_replica)
    assert step(state, refused, 200) == again
    assert THREE in state.maximal_isr
    step(state, refused, 200 + LOST_PROPOSAL_MS)
    assert THREE not in state.maximal_isr


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.invalid_update_version,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.new_leader_elected,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
    ],
)
def test_other_refusals_wait_for_the_metadata_log(error: ErrorCode) -> None:
    state, proposal = pending_expansion()
    assert step(state, ProposalAnswered(proposal, error), 0) == ()
    assert state.pending == proposal
    assert step(state, PartitionChanged(8, ALL, (ONE, TWO)), 0) != ()
    assert state.pending == Proposal(5, 8, ((ONE, 101), (TWO, -1), (THREE, 103)))


def test_a_failing_controller_is_asked_again() -> None:
    state, proposal = pending_expansion()
    answer = ProposalAnswered(proposal, ErrorCode.unknown_server_error)
    assert step(state, answer, 0) == (Propose(proposal, retry=True),)


def test_metadata_of_the_same_partition_epoch_does_not_undo_a_proposal() -> None:
    state, proposal = pending_expansion()
    assert step(state, PartitionChanged(7, ALL, (ONE, TWO)), 0) == ()
    assert state.pending == proposal
    late = ProposalAnswered(Proposal(5, 6, proposal.isr), ErrorCode.none, 5, 7, (ONE, TWO))
    assert step(state, late, 0) == ()
    assert state.pending == proposal


def test_a_reassignment_brings_and_takes_followers() -> None:
    state = leader()
    four = BrokerId(4)
    step(state, PartitionChanged(8, (ONE, TWO, four), (ONE, TWO)), 0)
    state.validate()
    assert set(state.followers) == {TWO, four}


def test_below_min_isr_nothing_becomes_committed() -> None:
    state = leader((ONE,), min_isr=2)
    assert state.under_min_isr
    assert step(state, Written(12), 0) == ()
    assert step(state, MinIsrChanged(1), 0) == (AdvanceHighWatermark(12),)


def test_min_isr_is_never_more_than_there_are_replicas() -> None:
    state = leader((ONE, TWO), min_isr=9)
    assert state.effective_min_isr == 3
    state.replicas = state.isr = (ONE,)
    assert state.effective_min_isr == 1


def test_a_commit_below_min_isr_is_reported() -> None:
    state = leader((ONE, TWO), min_isr=2)
    assert state.commit_error() is ErrorCode.none
    step(state, PartitionChanged(8, ALL, (ONE,)), 0)
    assert state.commit_error() is ErrorCode.not_enough_replicas_after_append


def test_the_low_watermark_is_the_lowest_start_of_live_replicas() -> None:
    state = leader()
    step(state, FollowerFetched(TWO, 102, 10, 4, 10), 0)
    assert state.low_watermark(6) == -1
    step(state, FollowerFetched(THREE, 103, 10, 5, 10), 0)
    assert state.low_watermark(6) == 4
    state.peers.eligible = frozenset({ONE, THREE})
    assert state.low_watermark(6) == 5


def test_alone_the_low_watermark_is_the_leaders() -> None:
    state = leader((ONE,))
    state.peers.eligible = frozenset({ONE})
    assert state.low_watermark(6) == 6


def test_a_follower_that_stopped_fetching_does_not_rejoin() -> None:
    """1. the follower's disk fails, so it stops; 2. the controller takes it out of the ISR; 3. it
    still has all that there is, but joins only when it fetches again."""
    state = leader()
    fetched(state, TWO, 10)
    fetched(state, THREE, 10)
    step(state, FollowerStopped(TWO), 0)
    assert step(state, PartitionChanged(8, ALL, (ONE, THREE)), 1) == ()
    assert step(state, CheckIsr(), 2) == ()
    assert step(state, Written(12), 2) == ()
    assert fetched(state, THREE, 12, 2) == (AdvanceHighWatermark(12),), "nobody waits for it"
    assert fetched(state, TWO, 10, 3) == ()
    (proposed,) = fetched(state, TWO, 12, 3)
    assert isinstance(proposed, Propose)
    assert proposed.proposal.isr_ids == (ONE, THREE, TWO)
