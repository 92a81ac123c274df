"""The table of transaction states: its transitions, and invariants of random walks."""

from collections.abc import (
    Callable,
)
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.txn import transitions
from odradek_broker.txn.log_records import decode_key, decode_value, encode_key, encode_value
from odradek_broker.txn.metadata import EPOCH_MAX, TransactionMetadata
from odradek_broker.txn.states import (
    PREPARED,
    SETTLED,
    TRANSITIONS,
    Event,
    TransactionState,
    next_state,
)
from odradek_broker.txn.transitions import NeedsProducerIdError, Step
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

S = TransactionState
TP = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000


def test_a_decision_is_final() -> None:
    """Each Prepare state has one successor, and no commit becomes an abort."""
    for state, end in ((S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)):
        ways = {event: after for (before, event), after in TRANSITIONS.items() if before is state}
        assert ways == {Event.MARKED: end}
        for event in (Event.INIT, Event.ADD):
            with pytest.raises(KafkaError) as caught:
                next_state(state, event)
            assert caught.value.code is ErrorCode.concurrent_transactions
        for event in (Event.COMMIT, Event.ABORT, Event.FENCE, Event.EXPIRE):
            with pytest.raises(KafkaError) as caught:
                next_state(state, event)
            assert caught.value.code is ErrorCode.invalid_txn_state


def test_names_and_numbers_are_those_of_kafka() -> None:
    assert {state.kafka_name: int(state) for state in S} == {
        "Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4,
        "CompleteAbort": 5, "Dead": 6, "PrepareEpochFence": 7,
    }  # fmt: skip


class Coordinator:
    """One transactional id, driven as the service does it; counts the ids that it gives."""

    def __init__(self) -> None:
        self.now: TransactionMetadata | None = None
        self.given = 100
        self.outcomes: dict[tuple[int, int], bool] = {}  # (id, epoch of the marker) → commit

    def take(self, decide: Callable[[ProducerId | None], Step]) -> Step:
        try:
            step = decide(None)
        except NeedsProducerIdError:
            self.given += 1
            step = decide(self.given)
        if step.after is not None:
            step.after.validate()
            stored = decode_value("x", encode_value(step.after))
            assert stored == step.after
            if stored.state in PREPARED:
                key = stored.producer_id, stored.producer_epoch
                assert key not in self.outcomes or not stored.bumps_epoch
                self.outcomes[key] = stored.commits
            self.now = stored
        return step

    def init(self, expected: tuple[int, int] | None = None) -> Step:
        return self.take(
            lambda fresh: transitions.init_producer_id(
                self.now, "x", 1000, expected, server_version=2, now_ms=NOW_MS, fresh_id=fresh
            )
        )

    def add(self, producer_id: int, epoch: int, version: int = 2) -> Step:
        return self.take(
            lambda _: transitions.add_partitions(
                self.now, producer_id, epoch, [TP], version=version, now_ms=NOW_MS
            )
        )

    def end(self, producer_id: int, epoch: int, commit: bool, version: int = 2) -> Step:
        return self.take(
            lambda fresh: transitions.end_txn(
                self.now, producer_id, epoch, commit=commit, version=version, now_ms=NOW_MS,
                fresh_id=fresh,
            )
        )  # fmt: skip

    def fence(self) -> Step:
        assert self.now is not None
        now = self.now
        return self.take(
            lambda fresh: transitions.fence(now, server_version=2, now_ms=NOW_MS, fresh_id=fresh)
        )

    def marked(self) -> None:
        if self.now is not None and self.now.state in PREPARED:
            self.now = transitions.complete(self.now, NOW_MS)
            self.now.validate()


@pytest.mark.parametrize("version", [0, 2])
def test_the_usual_life_of_a_transaction(version: int) -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    who = first.producer_id, first.producer_epoch
    coordinator.add(*who, version)
    ended = coordinator.end(*who, True, version)
    assert (ended.producer_id, ended.producer_epoch) == (who[0], who[1] + (1 if version else 0))
    coordinator.marked()
    assert coordinator.now is not None
    assert coordinator.now.state is S.COMPLETE_COMMIT
    again = coordinator.end(*who, True, version)  # the answer was lost
    assert again == replace(ended, after=None)
    with pytest.raises(KafkaError) as caught:
        coordinator.end(*who, False, version)
    assert caught.value.code is ErrorCode.invalid_txn_state


def test_used_up_epochs_lead_to_a_new_producer_id() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    assert coordinator.now is not None
    coordinator.now = replace(coordinator.now, producer_epoch=EPOCH_MAX - 1)
    who = first.producer_id, EPOCH_MAX - 1
    coordinator.add(*who)
    ended = coordinator.end(*who, False)
    assert ended.producer_id != who[0]
    assert ended.producer_epoch == 0
    assert coordinator.now.producer_epoch == EPOCH_MAX  # what the markers carry
    with pytest.raises(KafkaError) as caught:
        coordinator.add(ended.producer_id, 0)  # markers first
    assert caught.value.code is ErrorCode.concurrent_transactions
    coordinator.marked()
    assert coordinator.end(*who, False) == replace(ended, after=None)
    coordinator.add(ended.producer_id, 0)


def test_a_new_instance_aborts_and_comes_again() -> None:
    coordinator = Coordinator()
    old = coordinator.init()
    coordinator.add(old.producer_id, old.producer_epoch)
    assert coordinator.init().error is ErrorCode.concurrent_transactions
    coordinator.marked()
    new = coordinator.init()
    assert new.producer_id == old.producer_id
    assert new.producer_epoch > old.producer_epoch + 1
    requests: tuple[Callable[[int, int], Any], ...] = (
        coordinator.add,
        partial(coordinator.end, commit=True),
    )
    for request in requests:
        with pytest.raises(KafkaError) as caught:
            request(old.producer_id, old.producer_epoch)
        assert caught.value.code is ErrorCode.producer_fenced


actions = st.lists(
    st.tuples(
        st.sampled_from(["init", "recover", "add", "commit", "abort", "fence", "marked"]),
        st.integers(0, 3),  # which of the known identities sends it: also old ones
        st.sampled_from([0, 2]),
    ),
    max_size=40,
)


@given(actions, st.integers(0, EPOCH_MAX - 2))
def test_random_walks(steps: list[tuple[str, int, int]], start_epoch: int) -> None:
    """For any requests of old and new instances in any order: each transaction has one outcome,
    epochs only rise, and only the newest identity can change anything (but by InitProducerId)."""
    coordinator = Coordinator()
    first = coordinator.init()
    assert coordinator.now is not None
    coordinator.now = replace(coordinator.now, producer_epoch=start_epoch)
    known = [(first.producer_id, start_epoch)]
    for action, who, version in steps:
        before = coordinator.now
        assert before is not None
        identity = known[max(len(known) - 1 - who, 0)]
        try:
            if action == "init":
                step = coordinator.init()
            elif action == "recover":
                step = coordinator.init(identity)
            elif action == "add":
                step = coordinator.add(*identity, version)
            elif action in ("commit", "abort"):
                step = coordinator.end(*identity, action == "commit", version)
            elif action == "fence":
                step = coordinator.fence()
            else:
                coordinator.marked()
                continue
        except KafkaError:
            assert coordinator.now == before
            continue
        after = coordinator.now
        assert after is not None
        if after.producer_id == before.producer_id:
            assert after.producer_epoch >= before.producer_epoch
        if action in ("add", "commit", "abort") and step.after is not None:
            assert identity == (before.producer_id, before.producer_epoch)
        if step.producer_id != NO_PRODUCER_ID and action != "fence":
            given_now = step.producer_id, step.producer_epoch
            if given_now not in known:
                known.append(given_now)
        if before.state in SETTLED and after.state is S.ONGOING:
            assert action == "add"


@given(
    st.builds(
        TransactionMetadata,
        st.just("some id"),
        st.integers(0, 2**62),
        st.integers(0, EPOCH_MAX),
        st.integers(1, 2**31 - 1),
        st.sampled_from([s for s in S if s is not S.EMPTY]),
        st.frozensets(
            st.builds(TopicPartition, st.text(min_size=1, max_size=30), st.integers(0, 999))
        ),
        st.integers(-1, 2**62),
        st.integers(-1, 2**62),
        st.integers(-1, 2**62),
        st.integers(-1, 2**62),
        st.integers(-1, EPOCH_MAX),
        st.integers(0, 2),
    ),
    st.integers(0, 10_000),
)
def test_records_come_back_as_they_were(metadata: TransactionMetadata, cut: int) -> None:
    data = encode_value(metadata)
    assert decode_value("some id", data) == metadata
    assert decode_key(encode_key("some id")) == "some id"
    with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is looked at below)
        decode_value("some id", data[: cut % len(data)])
    assert type(caught.value).__name__ == "DecodeError"
