"""The follower's side: what it requests, which answers it applies, where it truncates."""

from collections.abc import Callable
from typing import Any

import pytest

from broker_tests.partition.replication_model import ListLog
from odradek_broker.partition.follower_state import (
    BACKOFF_MIN_MS,
    Append,
    ApplyFailed,
    FetchAnswered,
    FetchPosition,
    FetchUnanswered,
    FollowerState,
    LookUpOffsets,
    MoveHighWatermark,
    MoveLogStart,
    OffsetsFound,
    StartAt,
    Status,
    Truncate,
    TruncateFully,
    next_fetch,
    step,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId

BACKOFF_MS = BACKOFF_MIN_MS  # the first time
BACKOFF_MAX_MS = 50.0


def log_of(*epochs: int, high_watermark: int = 0) -> ListLog:
    """A log with one record per epoch named."""
    log = ListLog()
    log.append([(epoch, offset) for offset, epoch in enumerate(epochs)])
    log.high_watermark = high_watermark
    return log


def following(log: ListLog) -> tuple[FollowerState, FetchPosition]:
    state = FollowerState(BrokerId(1), 7, BACKOFF_MAX_MS)
    position = next_fetch(state, log, 0)
    assert position is not None
    return state, position


def answer(log: ListLog, **fields: Any) -> tuple[FollowerState, Any]:
    state, position = following(log)
    instructions = step(state, FetchAnswered(position, **fields), log, 0)
    state.validate()
    return state, instructions


def test_a_fetch_carries_log_end_and_last_epoch_and_only_one_is_in_flight() -> None:
    log = log_of(0, 0, 3)
    state, position = following(log)
    assert (position.fetch_offset, position.last_fetched_epoch, position.leader_epoch) == (3, 3, 7)
    assert next_fetch(state, log, 0) is None
    step(state, FetchUnanswered(position, failed=False), log, 0)
    assert next_fetch(state, log, 0) is not None


def test_records_and_high_watermark_are_taken_over() -> None:
    _, instructions = answer(log_of(0, 0), high_watermark=9, log_start_offset=0, records_end=5)
    assert instructions == (Append(5), MoveHighWatermark(5))


def test_the_high_watermark_comes_without_records_too_and_never_goes_back() -> None:
    log = log_of(0, 0, high_watermark=1)
    assert answer(log, high_watermark=2)[1] == (MoveHighWatermark(2),)
    assert answer(log, high_watermark=0)[1] == ()


def test_the_log_start_follows_the_leaders() -> None:
    log = log_of(0, 0, 0, high_watermark=3)
    assert answer(log, high_watermark=3, log_start_offset=2)[1] == (MoveLogStart(2),)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda log, _: log.append([(3, 9)]), id="log end"),
        pytest.param(lambda log, _: log.epochs.assign(4, 3), id="last epoch"),
        pytest.param(lambda _, state: setattr(state, "leader_epoch", 8), id="leader epoch"),
    ],
)
def test_an_answer_about_another_log_is_dropped(
    change: Callable[[ListLog, FollowerState], object],
) -> None:
    log = log_of(0, 0, 3)
    state, position = following(log)
    change(log, state)
    assert step(state, FetchAnswered(position, diverging=(0, 1)), log, 0) == ()
    assert state.status is Status.FETCHING


def test_an_answer_counts_once_and_only_that_of_the_fetch_under_way() -> None:
    log = log_of(0, 0, 3)
    state, first = following(log)
    step(state, FetchUnanswered(first, failed=False), log, 0)
    second = next_fetch(state, log, 0)
    assert second is not None
    assert step(state, FetchAnswered(first, diverging=(0, 2)), log, 0) == ()
    diverged = FetchAnswered(second, diverging=(0, 2))
    assert step(state, diverged, log, 0) == (Truncate(2, below_high_watermark=False),)
    assert step(state, diverged, log, 0) == ()


@pytest.mark.parametrize(
    ("ours", "diverging", "expected"),
    [
        pytest.param((0, 0, 3, 3), (3, 3), 3, id="the epoch ended earlier at the leader"),
        pytest.param((0, 0, 3, 3), (0, 2), 2, id="the leader lacks our last epoch"),
        pytest.param((0, 0, 3, 3), (0, 9), 2, id="… and has more of the one before"),
        pytest.param((0, 0, 3, 3), (2, 9), 2, id="an epoch that we never saw"),
        pytest.param((3, 3), (1, 1), 0, id="an epoch before all of ours"),
    ],
)
def test_the_log_is_truncated_where_it_diverges_from_the_leaders(
    ours: tuple[int, ...], diverging: tuple[int, int], expected: int
) -> None:
    _, instructions = answer(log_of(*ours), diverging=diverging)
    assert instructions == (Truncate(expected, below_high_watermark=False),)


def test_a_truncation_below_the_high_watermark_is_reported() -> None:
    _, instructions = answer(log_of(0, 0, 3, high_watermark=3), diverging=(0, 2))
    assert instructions == (Truncate(2, below_high_watermark=True),)


def test_an_epoch_without_records_at_the_end_is_forgotten() -> None:
    """It led in epoch 5 without a write, so the next leader has no epoch 5."""
    log = log_of(0, 0)
    log.epochs.assign(5, 2)
    _, instructions = answer(log, diverging=(0, 2))
    assert instructions == (Truncate(2, below_high_watermark=False),)


def test_out_of_range_asks_where_the_leaders_log_is() -> None:
    log = log_of(0, 0)
    for found, expected in (
        ((5, 9), (TruncateFully(5),)),
        ((0, 1), (Truncate(1, below_high_watermark=False),)),
        ((0, 5), ()),
    ):
        state, instructions = answer(log, error=ErrorCode.offset_out_of_range)
        (look_up,) = instructions
        assert isinstance(look_up, LookUpOffsets)
        assert next_fetch(state, log, 0) is None
        event = OffsetsFound(look_up.position, *found)
        assert step(state, event, log, 0) == expected
        assert step(state, event, log, 0) == ()
        state.validate()


class EmptyAtFive(ListLog):
    @property
    def log_end_offset(self) -> int:
        return 5


def test_an_empty_log_that_begins_in_the_middle_of_a_batch_takes_the_whole_batch() -> None:
    """The leader's log starts at 5, in the batch 3–7 (DeleteRecords)."""
    log = EmptyAtFive()
    log.log_start_offset = log.high_watermark = 5
    batch = {"records_start": 3, "records_end": 8, "high_watermark": 8, "log_start_offset": 5}
    _, instructions = answer(log, **batch)
    assert instructions == (StartAt(3), Append(8), MoveHighWatermark(8), MoveLogStart(5))
    # The high watermark of a new leader may not be known yet.
    _, instructions = answer(log, **{**batch, "high_watermark": 4})
    assert instructions == (StartAt(3), Append(8), MoveHighWatermark(4), MoveLogStart(4))


def test_a_log_with_records_never_goes_back_for_a_batch() -> None:
    log = log_of(0, 0, high_watermark=2)
    _, instructions = answer(log, records_start=1, records_end=4, high_watermark=4)
    assert instructions == (Append(4), MoveHighWatermark(4))  # refused by the log: it overlaps


def test_a_look_up_that_fails_is_tried_again_later() -> None:
    log = log_of(0)
    state, (look_up,) = answer(log, error=ErrorCode.offset_out_of_range)
    failed = OffsetsFound(look_up.position, error=ErrorCode.not_leader_or_follower)
    assert step(state, failed, log, 0) == ()
    assert next_fetch(state, log, 0) is None
    assert next_fetch(state, log, BACKOFF_MS) is not None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
    ],
)
def test_retriable_errors_are_backed_off(error: ErrorCode) -> None:
    log = log_of(0)
    state, _ = answer(log, error=error)
    assert next_fetch(state, log, BACKOFF_MS - 1) is None
    assert next_fetch(state, log, BACKOFF_MS) is not None


def test_fenced_waits_for_a_new_epoch() -> None:
    log = log_of(0)
    state, _ = answer(log, error=ErrorCode.fenced_leader_epoch)
    assert state.status is Status.FAILED
    assert next_fetch(state, log, 1e9) is None


def test_no_disk_fails_the_partition_damage_does_not() -> None:
    log = log_of(0)
    state, _ = answer(log, records_end=2)
    step(state, ApplyFailed(ErrorCode.corrupt_message, "CRC"), log, 0)
    assert state.status is Status.BACKING_OFF
    step(state, ApplyFailed(ErrorCode.kafka_storage_error, "no disk"), log, 0)
    assert (state.status, state.failure) == (Status.FAILED, "no disk")


def test_a_broken_connection_makes_it_wait() -> None:
    log = log_of(0)
    state, position = following(log)
    step(state, FetchUnanswered(position, failed=True), log, 0)
    assert next_fetch(state, log, 0) is None
    assert next_fetch(state, log, BACKOFF_MS) is not None


def test_pauses_grow_until_something_works() -> None:
    log = log_of(0)
    state, position = following(log)
    now_ms, pauses = 0.0, []
    for _ in range(4):
        step(state, FetchUnanswered(position, failed=True), log, now_ms)
        pauses.append(state.ready_at_ms - now_ms)
        now_ms = state.ready_at_ms
        again = next_fetch(state, log, now_ms)
        assert again is not None
        position = again
    assert pauses == [20, 40, 50, 50]
    step(state, FetchAnswered(position, high_watermark=1), log, now_ms)
    assert state.failures == 0
