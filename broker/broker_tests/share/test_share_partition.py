"""The rules of a share partition one by one, and random walks that compare it with a model."""

from __future__ import annotations

import pytest

from broker_tests.share.share_model import Walk, batches
from odradek_broker.share.share_partition import (
    Acknowledged,
    Acquired,
    Limits,
    LogBatch,
    SharePartition,
    StateBatch,
    Wanted,
)
from odradek_broker.share.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    TRANSITIONS,
    RecordEvent,
    next_state,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.share_codes import AcknowledgeType

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LIMITS = Limits(lock_ms=1000, locks_max=100, delivery_count_max=3)


def take(
    partition: SharePartition,
    member: str,
    last: int,
    *,
    now: float = 0.0,
    limits: Limits = LIMITS,
    wanted: Wanted | None = None,
) -> list[Acquired]:
    at = partition.next_fetch_offset()
    return partition.acquire(
        member, at, batches(at - at % 10, last), wanted or Wanted(), limits, now
    )


def acknowledge(partition: SharePartition, member: str, *batch: tuple[int, int, int]) -> None:
    update = partition.acknowledge(
        member, [Acknowledged(a, b, [kind]) for a, b, kind in batch], LIMITS, 0.0
    )
    if update is not None:
        partition.settle(update, written=True)
    partition.validate()


def states(partition: SharePartition) -> str:
    """One letter per record in flight: v available, A acquired, k acknowledged, r archived."""
    letters = {AVAILABLE: "v", ACQUIRED: "A", ACKNOWLEDGED: "k", ARCHIVED: "r"}
    return "".join(letters[run.delivery.state] * run.size for run in partition.runs())


def test_records_are_acquired_once_and_done_in_any_order() -> None:
    partition = SharePartition(0)
    assert take(partition, "a", 9) == [Acquired(0, 9, 1)]
    assert take(partition, "b", 19) == [Acquired(10, 19, 1)]
    acknowledge(partition, "a", (2, 4, ACCEPT))
    assert (partition.start_offset, states(partition)) == (0, "AAkkk" + "A" * 15)
    acknowledge(partition, "a", (0, 1, ACCEPT))
    assert (partition.start_offset, partition.end_offset) == (5, 19)
    acknowledge(partition, "b", (10, 19, REJECT))
    assert states(partition) == "A" * 5 + "r" * 10
    acknowledge(partition, "a", (5, 9, ACCEPT))
    assert (partition.start_offset, partition.in_flight) == (20, 0)


def test_a_released_record_is_delivered_again_and_counts() -> None:
    partition = SharePartition(0)
    take(partition, "a", 9)
    acknowledge(partition, "a", (0, 2, ACCEPT), (3, 3, RELEASE), (4, 9, ACCEPT))
    assert partition.next_fetch_offset() == 3
    assert take(partition, "b", 9) == [Acquired(3, 3, 2)]
    acknowledge(partition, "b", (3, 3, RELEASE))
    assert take(partition, "b", 9) == [Acquired(3, 3, 3)]
    acknowledge(partition, "b", (3, 3, RELEASE))  # its third delivery was the last one
    assert partition.start_offset == 10


@pytest.mark.parametrize(
    ("member", "batch", "code"),
    [
        ("b", (0, 9, ACCEPT), ErrorCode.invalid_record_state),
        ("a", (0, 10, ACCEPT), ErrorCode.invalid_request),
        ("a", (30, 31, ACCEPT), ErrorCode.invalid_request),
    ],
)
def test_a_refused_acknowledgement_changes_nothing(
    member: str, batch: tuple[int, int, int], code: ErrorCode
) -> None:
    partition = SharePartition(0)
    take(partition, "a", 9)
    before = partition.runs()
    with pytest.raises(KafkaError) as refused:
        acknowledge(partition, member, batch)
    assert refused.value.code is code
    assert partition.runs() == before
    partition.validate()


def test_one_bad_batch_refuses_all_of_them() -> None:
    partition = SharePartition(0)
    take(partition, "a", 9)
    acknowledge(partition, "a", (5, 5, ACCEPT))
    with pytest.raises(KafkaError) as refused:
        acknowledge(partition, "a", (0, 1, ACCEPT), (5, 5, ACCEPT))
    assert refused.value.code is ErrorCode.invalid_record_state
    assert states(partition) == "AAAAAkAAAA"


def test_an_acknowledgement_that_is_repeated_below_the_start_is_accepted() -> None:
    partition = SharePartition(0)
    take(partition, "a", 9)
    acknowledge(partition, "a", (0, 3, ACCEPT))
    acknowledge(partition, "a", (0, 3, ACCEPT))
    assert partition.start_offset == 4


def test_nothing_is_visible_before_it_is_written() -> None:
    """1. a releases. 2. Nobody gets the records, and a second acknowledgement is refused.
    3. The write fails: a has its locks again. 4. The second try is written."""
    partition = SharePartition(0)
    take(partition, "a", 9)
    batch = [Acknowledged(0, 9, [RELEASE])]
    update = partition.acknowledge("a", batch, LIMITS, 0.0)
    assert update is not None
    assert update.batches == (StateBatch(0, 9, AVAILABLE, 1),)
    assert take(partition, "b", 9) == []
    with pytest.raises(KafkaError):
        partition.acknowledge("a", batch, LIMITS, 0.0)
    partition.settle(update, written=False)
    assert states(partition) == "A" * 10
    acknowledge(partition, "a", (0, 9, RELEASE))
    assert take(partition, "b", 9) == [Acquired(0, 9, 2)]


def test_an_update_moves_the_start_only_as_far_as_it_is_durable() -> None:
    """0–4 and 5–9 are written at the same time: neither update may rely on the other."""
    partition = SharePartition(0)
    take(partition, "a", 9)
    low = partition.acknowledge("a", [Acknowledged(0, 4, [ACCEPT])], LIMITS, 0.0)
    high = partition.acknowledge("a", [Acknowledged(5, 9, [ACCEPT])], LIMITS, 0.0)
    assert low is not None
    assert high is not None
    assert (low.start_offset, low.batches, low.complete) == (5, (), 0)
    assert (high.start_offset, high.batches) == (0, (StateBatch(5, 9, ACKNOWLEDGED, 1),))
    partition.settle(low, written=False)
    partition.settle(high, written=True)
    assert (partition.start_offset, states(partition)) == (0, "AAAAAkkkkk")


def test_locks_time_out_and_are_renewed() -> None:
    partition = SharePartition(0)
    take(partition, "a", 9, now=0.0)
    renewed = partition.acknowledge("a", [Acknowledged(0, 4, [RENEW])], LIMITS, 900.0)
    assert renewed is None
    assert partition.next_deadline_ms() == 1000.0
    update = partition.expire(LIMITS, 1000.0)
    assert update is not None
    assert update.batches == (StateBatch(5, 9, AVAILABLE, 1),)
    assert states(partition) == "AAAAAvvvvv"
    assert partition.next_deadline_ms() == 1900.0
    partition.expire(LIMITS, 1900.0)
    assert states(partition) == "v" * 10
    assert partition.next_deadline_ms() == float("inf")


def test_the_locks_of_a_member_are_freed_when_it_is_gone() -> None:
    partition = SharePartition(0)
    take(partition, "a", 9)
    take(partition, "b", 19)
    update = partition.release("a", LIMITS)
    assert update is not None
    assert update.batches == (StateBatch(0, 9, AVAILABLE, 1),)
    assert states(partition) == "v" * 10 + "A" * 10
    assert partition.release("a", LIMITS) is None
    partition.validate()


def test_the_number_of_locks_is_limited_but_released_records_go_out() -> None:
    limits = LIMITS._replace(locks_max=10)
    partition = SharePartition(0)
    assert take(partition, "a", 29, limits=limits) == [Acquired(0, 9, 1)]
    assert not partition.can_acquire(limits)
    assert take(partition, "b", 29, limits=limits) == []
    acknowledge(partition, "a", (5, 5, RELEASE))
    assert partition.can_acquire(limits)
    assert take(partition, "b", 29, limits=limits) == [Acquired(5, 5, 2)]
    acknowledge(partition, "a", (0, 4, ACCEPT))
    assert take(partition, "b", 29, limits=limits) == [Acquired(10, 19, 1)]


def test_the_record_limit_is_strict_or_keeps_log_batches_whole() -> None:
    partition = SharePartition(0)
    assert take(partition, "a", 99, wanted=Wanted(15)) == [Acquired(0, 19, 1)]
    assert take(partition, "a", 99, wanted=Wanted(15, strict=True)) == [Acquired(20, 34, 1)]
    assert take(partition, "a", 99, wanted=Wanted(20, batch_size=10)) == [
        Acquired(35, 39, 1)._replace(last=49),
        Acquired(50, 59, 1),
    ]


def test_offsets_that_the_log_does_not_have_are_archived() -> None:
    """A compacted log: 3–5 are gone between two batches; an aborted batch is not delivered."""
    partition = SharePartition(0)
    log = [LogBatch(0, 2), LogBatch(6, 7), LogBatch(8, 9, delivered=False), LogBatch(10, 11)]
    got = partition.acquire("a", 0, log, Wanted(), LIMITS, 0.0)
    assert got == [Acquired(0, 2, 1), Acquired(6, 7, 1), Acquired(10, 11, 1)]
    assert states(partition) == "AAArrrAArrAA"
    acknowledge(partition, "a", (0, 2, ACCEPT), (6, 7, ACCEPT), (10, 11, ACCEPT))
    assert partition.start_offset == 12


def test_records_deleted_from_the_log_are_dropped() -> None:
    partition = SharePartition(0)
    take(partition, "a", 9)
    partition.log_start_moved(5)
    assert (partition.start_offset, states(partition)) == (5, "AAAAA")
    moved = partition.unsaved()
    assert moved is not None
    assert moved.start_offset == 5
    assert partition.unsaved() is None
    acknowledge(partition, "a", (0, 4, ACCEPT))
    partition.log_start_moved(50)
    assert (partition.start_offset, partition.end_offset, partition.in_flight) == (50, 49, 0)
    assert take(partition, "a", 59) == [Acquired(50, 59, 1)]


def test_a_saved_state_is_loaded_with_its_holes() -> None:
    """5–6 were acquired when the leader died: nothing is saved about them."""
    saved = [StateBatch(7, 9, AVAILABLE, 2), StateBatch(2, 4, ACKNOWLEDGED, 1)]
    partition = SharePartition(2, 7, saved)
    assert (partition.start_offset, states(partition)) == (5, "vvvvv")
    assert take(partition, "a", 9) == [Acquired(5, 6, 1), Acquired(7, 9, 3)]


def test_every_pair_that_is_not_in_the_table_is_refused() -> None:
    for state in (AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED):
        for event in RecordEvent:
            if (state, event) not in TRANSITIONS:
                with pytest.raises(KafkaError):
                    next_state(state, event)


@pytest.mark.parametrize("seed", range(60))
def test_random_walks_agree_with_the_model(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(300):
        walk.step()
