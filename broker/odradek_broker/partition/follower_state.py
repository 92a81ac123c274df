"""The follower's side of replication: where to fetch next, and what an answer changes.

Does no I/O. `replication/fetcher.py` drives it, one `FollowerState` per partition and leader epoch:

    position = next_fetch(state, log, now_ms)            None while there is nothing to ask
    instructions = step(state, FetchAnswered(…), log, now_ms)

and carries the instructions out in their order, before it gives the next event. If one fails,
the rest is dropped and the failure is the next event (`ApplyFailed`).

A fetch says (fetch_offset, last_fetched_epoch, leader epoch): "my log ends at 120, and what is
before 120 was written in epoch 3". If the leader's epoch 3 ended at 100, it answers that
instead of records, and the follower cuts its log there (KIP-320, KIP-595):

    follower  0 ···· e2 ···· 80 ···· e3 ···· 120                fetch 120, last epoch 3
    leader    0 ···· e2 ···· 80 ·· e3 ·· 100 ···· e5 ··· 140    diverging: epoch 3 ends at 100
    follower  0 ···· e2 ···· 80 ·· e3 ·· 100                    fetch 100, last epoch 3

An answer counts only if it belongs to the one fetch that is under way, the leader epoch is
still the same, and log end and last epoch still equal those of that fetch. A late answer that
was applied all the same erased acknowledged records in a model, one run in 250.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset

# The first pause after an error; each further one is twice as long, up to the setting
# replica.fetch.backoff.ms. After an election a follower often asks before the new leader knows
# that it leads, and writes wait for the follower.
BACKOFF_MIN_MS = 20.0


class KnownEpochs(Protocol):
    @property
    def latest(self) -> LeaderEpoch: ...


class FollowerLog(Protocol):
    """The read-only view of the log; `log.Log` is one."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def epochs(self) -> KnownEpochs: ...

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]: ...


class Status(Enum):
    """`FETCHING` ⇄ `LOOKING_UP`; from both to `BACKING_OFF` and back in time, or to `FAILED`.

    Only a new leader epoch, which is a new state, gets a partition out of `FAILED`.
    """

    FETCHING = "fetching"
    LOOKING_UP = "looking up"  # out of range: asks the leader where its log begins and ends
    BACKING_OFF = "backing off"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The state of our log in a fetch request; the answer is compared with the log again."""

    number: int  # of the fetch, counted in this state
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch  # -1: the log has no epochs, thus no records
    log_start_offset: Offset


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """The answer to one fetch. `records_start` is the first offset of its first batch, and
    `records_end` the offset after its last whole one.
    """

    position: FetchPosition
    error: ErrorCode = ErrorCode.none
    high_watermark: Offset = -1
    log_start_offset: Offset = -1
    diverging: tuple[LeaderEpoch, Offset] | None = None
    records_end: Offset | None = None  # None: no records
    records_start: Offset | None = None


@dataclass(frozen=True, slots=True)
class FetchUnanswered:
    """No answer will come, or the answer does not mention the partition: nothing is new.

    `failed`: the connection broke, so the next fetch waits.
    """

    position: FetchPosition
    failed: bool


@dataclass(frozen=True, slots=True)
class OffsetsFound:
    """Where the leader's log begins and ends, as `LookUpOffsets` asked; or an error."""

    position: FetchPosition
    start_offset: Offset = -1
    end_offset: Offset = -1
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """An instruction could not be carried out."""

    error: ErrorCode
    reason: str


Event: TypeAlias = FetchAnswered | FetchUnanswered | OffsetsFound | ApplyFailed

# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class Append:
    """Append and write the records of the answer, up to `end_offset`."""

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class MoveHighWatermark:
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """The leader deleted what is before this offset."""

    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop all from `offset` on. Also when the log ends there: an epoch that began at the very
    end, without records, has to be forgotten.

    `below_high_watermark`: the leader lacks what was committed once. That takes an unclean
    election or a leader that lost its disk, so the driver logs it as an error.
    """

    offset: Offset
    below_high_watermark: bool


@dataclass(frozen=True, slots=True)
class TruncateFully:
    """Drop everything and continue at `offset`: the leader has none of our records."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class StartAt:
    """Our log is empty; it begins at this earlier offset instead.

    DeleteRecords can move the start of the leader's log into the middle of a batch, say to 130 in
    the batch 120–139. A follower that begins there asks for 130 and gets the whole batch.
    """

    offset: Offset


@dataclass(frozen=True, slots=True)
class LookUpOffsets:
    """Ask the leader where its log begins and ends (ListOffsets); `OffsetsFound` follows."""

    position: FetchPosition  # of the fetch that was out of range


Instruction: TypeAlias = (
    Append | MoveHighWatermark | MoveLogStart | Truncate | TruncateFully | StartAt | LookUpOffsets
)
Instructions: TypeAlias = tuple[Instruction, ...]

# ---------------------------------------------------------------- state


class FollowerState:
    """Following one leader in one epoch. Invariants (`validate`):

    at most one fetch or look-up is under way; LOOKING_UP has one, FAILED has none
    FAILED has a reason
    """

    __slots__ = (
        "_numbers",
        "backoff_max_ms",
        "failure",
        "failures",
        "lag",
        "leader",
        "leader_epoch",
        "ready_at_ms",
        "status",
        "under_way",
    )

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch, backoff_max_ms: float) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.backoff_max_ms = backoff_max_ms
        self.status = Status.FETCHING
        self.under_way: FetchPosition | None = None
        self.ready_at_ms = 0.0  # while BACKING_OFF
        self.failures = 0  # in a row
        self.lag: Offset = 0  # committed records that we lacked after the last answer
        self.failure: str | None = None
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def back_off(self, now_ms: float) -> None:
        self.status = Status.BACKING_OFF
        self.ready_at_ms = now_ms + pause_after(self.failures, self.backoff_max_ms)
        self.failures += 1

    def fail(self, reason: str) -> None:
        self.status = Status.FAILED
        self.failure = reason

    def validate(self) -> None:
        """Check the invariants; tests call it after each step."""
        if self.under_way is not None:
            assert self.status in (Status.FETCHING, Status.LOOKING_UP)
            assert self.under_way.leader_epoch == self.leader_epoch
            assert self.under_way.number == self._numbers
        assert self.under_way is not None or self.status is not Status.LOOKING_UP
        assert (self.status is Status.FAILED) == (self.failure is not None)


def pause_after(failures: int, longest_ms: float) -> float:
    """How long to wait after one more failure, when there were so many in a row before it."""
    return min(BACKOFF_MIN_MS * 2.0 ** min(failures, 10), longest_ms)


def next_fetch(state: FollowerState, log: FollowerLog, now_ms: float) -> FetchPosition | None:
    """The fetch to send now; it is under way from then on. None: not now."""
    if state.status is Status.BACKING_OFF and now_ms >= state.ready_at_ms:
        state.status = Status.FETCHING
    if state.status is not Status.FETCHING or state.under_way is not None:
        return None
    state.under_way = FetchPosition(
        state.next_number(),
        state.leader_epoch,
        log.log_end_offset,
        log.epochs.latest,
        log.log_start_offset,
    )
    return state.under_way


def step(state: FollowerState, event: Event, log: FollowerLog, now_ms: float) -> Instructions:
    return _STEP[type(event)](state, event, log, now_ms)


# ---------------------------------------------------------------- answers


def _answered(
    state: FollowerState, event: FetchAnswered, log: FollowerLog, now_ms: float
) -> Instructions:
    position = event.position
    if state.status is not Status.FETCHING or not _belongs(state, position, log):
        return ()
    if event.error is not ErrorCode.none:
        return _refused(state, position, event.error, now_ms)
    state.failures = 0
    if event.diverging is not None:
        return _diverged(event.diverging, log)
    end_offset = position.fetch_offset
    known, start = log.high_watermark, log.log_start_offset
    instructions: list[Instruction] = []
    if event.records_end is not None:
        end_offset = event.records_end
        first = event.records_start
        if first is not None and first < log.log_end_offset == start < end_offset:
            instructions.append(StartAt(first))
            known = start = first
        instructions.append(Append(end_offset))
    state.lag = max(0, event.high_watermark - end_offset)
    # Records that a leader has sent as committed stay committed: a new leader that does not know
    # the high watermark yet does not lower it.
    high_watermark = min(event.high_watermark, end_offset)
    if high_watermark > known:
        instructions.append(MoveHighWatermark(high_watermark))
    log_start_offset = min(event.log_start_offset, max(high_watermark, known))
    if log_start_offset > start:
        instructions.append(MoveLogStart(log_start_offset))
    return tuple(instructions)


def _belongs(state: FollowerState, position: FetchPosition, log: FollowerLog) -> bool:
    """Whether we wait for an answer to `position`, and our log has not changed since."""
    if position != state.under_way or position.leader_epoch != state.leader_epoch:
        return False  # given up before, or of another leader epoch
    state.under_way = None
    state.status = Status.FETCHING
    return (log.log_end_offset, log.epochs.latest) == (
        position.fetch_offset,
        position.last_fetched_epoch,
    )


def _refused(
    state: FollowerState, position: FetchPosition, error: ErrorCode, now_ms: float
) -> Instructions:
    if error is ErrorCode.offset_out_of_range:
        state.status = Status.LOOKING_UP
        state.under_way = position
        return (LookUpOffsets(position),)
    if error is ErrorCode.fenced_leader_epoch:
        # There is a newer epoch: the metadata log brings it here too.
        state.fail("fenced: the leader is in a later epoch than we know of")
        return ()
    # The leader knows less than we do (UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID …), no longer
    # leads, or has an error of its own: all of these are retriable.
    state.back_off(now_ms)
    return ()


def _diverged(diverging: tuple[LeaderEpoch, Offset], log: FollowerLog) -> Instructions:
    """Truncate to where the leader's log diverges, but never further than the leader reported."""
    leader_epoch, leader_end = diverging
    our_epoch, our_end = log.end_offset_for_epoch(leader_epoch)
    offset = min(leader_end, log.log_end_offset)
    if our_epoch == leader_epoch:
        offset = min(offset, our_end)
    elif our_epoch != NO_LEADER_EPOCH:
        # We do not have that epoch: records after the end of our last earlier epoch are not the
        # leader's. The next fetch finds where that earlier epoch ended at the leader.
        offset = min(our_end, log.log_end_offset)
    return (Truncate(offset, below_high_watermark=offset < log.high_watermark),)


def _unanswered(
    state: FollowerState, event: FetchUnanswered, _: FollowerLog, now_ms: float
) -> Instructions:
    if event.position == state.under_way:
        state.under_way = None
        state.status = Status.FETCHING
        if event.failed:
            state.back_off(now_ms)
    return ()


def _offsets_found(
    state: FollowerState, event: OffsetsFound, log: FollowerLog, now_ms: float
) -> Instructions:
    if state.status is not Status.LOOKING_UP or not _belongs(state, event.position, log):
        return ()
    if event.error is not ErrorCode.none:
        state.back_off(now_ms)
        return ()
    if not log.log_start_offset < event.end_offset or event.start_offset > log.log_end_offset:
        return (TruncateFully(event.start_offset),)  # the two logs have nothing in common
    if event.end_offset < log.log_end_offset:
        offset = event.end_offset
        return (Truncate(offset, below_high_watermark=offset < log.high_watermark),)
    # In range by now. The pause keeps two logs that do not fit from repeating this without
    # end.
    state.back_off(now_ms)
    return ()


def _apply_failed(
    state: FollowerState, event: ApplyFailed, _: FollowerLog, now_ms: float
) -> Instructions:
    if event.error is ErrorCode.kafka_storage_error:
        state.fail(event.reason)
    else:
        state.back_off(now_ms)  # damaged in transit, or in the leader's page cache: fetch again
    return ()


_STEP: dict[type, Callable[[FollowerState, Any, FollowerLog, float], Instructions]] = {
    FetchAnswered: _answered,
    FetchUnanswered: _unanswered,
    OffsetsFound: _offsets_found,
    ApplyFailed: _apply_failed,
}
