"""The state of a partition's records in a share group: in flight, locked, done. Does no I/O.

One object per group and partition, on the broker that leads the partition. Records in
[start_offset, end_offset] are in flight; everything before is done, everything after was never
delivered. Example: 10 records were acquired, 0–3 accepted, 5 released:

    start_offset 4 │ 4 ACQUIRED │ 5 AVAILABLE, delivered once │ 6–9 ACQUIRED │ end_offset 9

An acknowledgement is visible to others only when it is durable. So it is done in two steps:

    update = partition.acknowledge(…)       the records change, but are not available yet
    partition.settle(update, written=True)  they are done; or they are as before if that failed

A lock that timed out, or whose member is gone, is released at once; the write that makes the
delivery count durable follows. Acquiring is not written at all, as in Kafka: a new leader delivers
again what was acquired, so delivery is at least once.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from odradek_broker.share.runs import Delivery, Run, RunList
from odradek_broker.share.states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    COMPLETE,
    EVENT_OF,
    RecordEvent,
    RecordState,
    next_state,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset
from odradek_protocol.share_codes import AcknowledgeType

PAST_FIRST = "Batch record not found. The first offset in request is past acquired records."
PAST_LAST = "Batch record not found. The last offset in request is past acquired records."
NOT_ASCENDING = "The acknowledgement batches of a partition must ascend without overlaps."
NOT_OWNER = "Member is not the owner of batch record"
IN_TRANSITION = (
    "The record state is invalid. The acknowledgement of delivery could not be completed."
)


class LogBatch(NamedTuple):
    """Offsets of one batch of the log. Control batches and aborted ones are not delivered."""

    first: Offset
    last: Offset
    delivered: bool = True


class Acquired(NamedTuple):
    first: Offset
    last: Offset
    delivery_count: int


class Acknowledged(NamedTuple):
    """One type for all offsets, or one per offset."""

    first: Offset
    last: Offset
    types: Sequence[int]


class StateBatch(NamedTuple):
    """Offsets with one state, as they are written."""

    first: Offset
    last: Offset
    state: int
    deliveries: int


class Update(NamedTuple):
    """A change that has to be made durable; `number` identifies it in `settle`."""

    number: int
    start_offset: Offset
    batches: tuple[StateBatch, ...]
    complete: int  # offsets from start_offset on that are acknowledged or archived


class Limits(NamedTuple):
    """The settings share.* of one group."""

    lock_ms: int = 30_000
    locks_max: int = 2000
    delivery_count_max: int = 5
    renew: bool = True


class Wanted(NamedTuple):
    """How many records a fetch asks for."""

    records_max: int = 500
    batch_size: int = 500  # an acquired batch is cut when it has that many
    strict: bool = False  # never more than records_max; else log batches stay whole


class SharePartition:
    """Invariants: the first run is not complete, unless it is being written; a run is acquired if
    and only if it has a member; no delivery count exceeds the limit that applied to it."""

    def __init__(
        self, start_offset: Offset, state_epoch: int = 0, saved: Sequence[StateBatch] = ()
    ) -> None:
        self.state_epoch = state_epoch
        self._runs = RunList(start_offset)
        self._saved_start = start_offset
        self._updates = 0
        self._deadlines: list[float] = []  # a heap; may have deadlines of locks that are gone
        self.lock_timeouts = 0  # records whose lock timed out, for metrics
        for batch in sorted(saved):
            if batch.last < start_offset:
                continue
            # Between saved batches: never delivered, or locked when the last leader died.
            self._runs.append(batch.first - 1, Delivery(AVAILABLE, 0))
            self._runs.append(batch.last, Delivery(RecordState(batch.state), batch.deliveries))
        self._move_start()
        self._saved_start = start_offset

    @property
    def start_offset(self) -> Offset:
        return self._runs.start

    @property
    def end_offset(self) -> Offset:
        return self._runs.end

    @property
    def in_flight(self) -> int:
        """Records that are locked, or wait to be delivered again."""
        return self._runs.end - self._runs.start + 1 - self._runs.complete

    @property
    def complete(self) -> int:
        """Records from start_offset on that are acknowledged or archived."""
        return self._runs.complete

    def next_fetch_offset(self) -> Offset:
        """The first record that can be acquired, among those in flight or after them."""
        for run in self._runs:
            if run.delivery.state is AVAILABLE and run.before is None:
                return run.first
        return self._runs.end + 1

    def has_available(self, first: Offset, count: int, last: Offset) -> bool:
        """Whether so many of the offsets from `first` to `last` can be acquired."""
        found = max(last - max(first - 1, self.end_offset), 0)
        for run in self._runs.overlapping(first, last):
            if found >= count:
                break
            if run.delivery.state is AVAILABLE and run.before is None:
                found += min(run.last, last) - max(run.first, first) + 1
        return found >= count

    def can_acquire(self, limits: Limits) -> bool:
        return self.next_fetch_offset() <= self.end_offset or self.in_flight < limits.locks_max

    def runs(self) -> list[Run]:
        """For tests and metrics."""
        return list(self._runs)

    # --- delivery ---------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        fetch_offset: Offset,
        batches: Sequence[LogBatch],
        wanted: Wanted,
        limits: Limits,
        now_ms: float,
    ) -> list[Acquired]:
        """Locks available records of these batches, which were read from `fetch_offset` on.

        An offset in flight that the log does not have any more is archived.
        """
        lock = (member_id, now_ms + limits.lock_ms)
        acquired: list[Acquired] = []
        left = wanted.records_max
        at = max(fetch_offset, self.start_offset)
        for batch in batches:
            if batch.last < at:
                continue
            if left <= 0:
                break
            self._skip(at, batch.first - 1)
            at = max(at, batch.first)
            if not batch.delivered:
                self._skip(at, batch.last)
                at = batch.last + 1
                continue
            room = limits.locks_max - self.in_flight
            last = min(batch.last, at + left - 1) if wanted.strict else batch.last
            if last > self.end_offset and room <= 0:
                last = self.end_offset
            taken = self._acquire_range(at, last, lock, limits)
            left -= sum(one.last - one.first + 1 for one in taken)
            acquired += taken
            if last < batch.last:
                break
            at = batch.last + 1
        if acquired:
            heapq.heappush(self._deadlines, lock[1])
            self._runs.join_around(acquired[0].first, acquired[-1].last)
        self._move_start()
        return _cut(acquired, wanted.batch_size)

    def _acquire_range(
        self, first: Offset, last: Offset, lock: tuple[str, float], limits: Limits
    ) -> list[Acquired]:
        taken = []
        new_from = max(first, self.end_offset + 1)
        for run in list(self._runs.overlapping(first, min(last, self.end_offset))):
            if run.delivery.state is not AVAILABLE or run.before is not None:
                continue
            for part in self._runs.within(max(run.first, first), min(run.last, last)):
                count = part.delivery.deliveries + 1
                if count > limits.delivery_count_max:  # the limit was lowered
                    self._runs.set(part, Delivery(ARCHIVED, count - 1))
                    continue
                state = next_state(part.delivery.state, RecordEvent.ACQUIRED)
                self._runs.set(part, Delivery(state, count, *lock))
                taken.append(Acquired(part.first, part.last, count))
        if last >= new_from:
            self._runs.append(new_from - 1, Delivery(ARCHIVED, 0))
            self._runs.append(last, Delivery(ACQUIRED, 1, *lock))
            taken.append(Acquired(new_from, last, 1))
        return taken

    def _skip(self, first: Offset, last: Offset) -> None:
        """Skips offsets that have no record, or a control record: they are never delivered."""
        if first > last:
            return
        for run in self._runs.within(first, last):
            if run.delivery.state is AVAILABLE and run.before is None:
                after = next_state(run.delivery.state, RecordEvent.SKIPPED)
                self._runs.set(run, Delivery(after, run.delivery.deliveries))
        self._runs.append(last, Delivery(ARCHIVED, 0))
        self._runs.join_around(first, last)

    # --- acknowledgement --------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[Acknowledged], limits: Limits, now_ms: float
    ) -> Update | None:
        """Applies all of it, or raises KafkaError. None if nothing has to be written (RENEW).

        Offsets before start_offset are done with: the acknowledgement was repeated, or the log has
        dropped the records.
        """
        parts: list[tuple[Offset, Offset, RecordEvent]] = []
        for batch in batches:
            if batch.first > self.end_offset:
                raise KafkaError(ErrorCode.invalid_request, PAST_FIRST)
            if batch.last > self.end_offset:
                raise KafkaError(ErrorCode.invalid_request, PAST_LAST)
            if parts and batch.first <= parts[-1][1]:
                raise KafkaError(ErrorCode.invalid_record_state, NOT_ASCENDING)
            for first, last, event in _by_event(batch):
                for run in self._runs.overlapping(first, last):
                    _check_acknowledgeable(run, member_id, event)
                parts.append((first, last, event))
        self._updates += 1
        changed: list[Run] = []
        for first, last, event in parts:
            for run in self._runs.within(first, last):
                if event is RecordEvent.RENEWED:
                    deadline_ms = now_ms + limits.lock_ms
                    self._runs.set(run, run.delivery._replace(deadline_ms=deadline_ms))
                    heapq.heappush(self._deadlines, deadline_ms)
                    continue
                run.update, run.before = self._updates, run.delivery
                self._runs.set(run, _after(run.delivery, event, limits))
                changed.append(run)
        update = self._update(changed) if changed else None
        for first, last, _ in parts:
            self._runs.join_around(first, last)
        return update

    def settle(self, update: Update, *, written: bool) -> None:
        """The update is durable, or failed: then the locks are as before it."""
        for run in self._runs:
            if run.update == update.number and run.before is not None:
                if not written:
                    self._runs.set(run, run.before)
                    if run.before.state is ACQUIRED:
                        heapq.heappush(self._deadlines, run.before.deadline_ms)
                run.update, run.before = 0, None
        if written:
            self._saved_start = max(self._saved_start, update.start_offset)
        self._runs.join_around(self.start_offset, self.end_offset)
        self._move_start()

    # --- locks that are lost ----------------------------------------------------------------------

    def release(self, member_id: str, limits: Limits) -> Update | None:
        """The member is gone: frees its locks."""
        return self._lose([r for r in self._runs if _is_locked_by(r, member_id)], limits)

    def expire(self, limits: Limits, now_ms: float) -> Update | None:
        """Frees the locks that timed out."""
        while self._deadlines and self._deadlines[0] <= now_ms:
            heapq.heappop(self._deadlines)
        due = [
            run
            for run in self._runs
            if run.delivery.state is ACQUIRED and run.delivery.deadline_ms <= now_ms
        ]
        self.lock_timeouts += sum(run.size for run in due)
        return self._lose(due, limits)

    def next_deadline_ms(self) -> float:
        """When `expire` may have something to do."""
        return self._deadlines[0] if self._deadlines else float("inf")

    def _lose(self, locked: list[Run], limits: Limits) -> Update | None:
        if not locked:
            return None
        for run in locked:
            self._runs.set(run, _after(run.delivery, RecordEvent.LOCK_LOST, limits))
        self._updates += 1
        update = self._update(locked)
        self._runs.join_around(self.start_offset, self.end_offset)
        self._move_start()
        return update

    # --- the start --------------------------------------------------------------------------------

    def log_start_moved(self, offset: Offset) -> None:
        """Records before `offset` are gone from the log."""
        self._runs.drop_before(offset)
        self._move_start()

    def unsaved(self) -> Update | None:
        """The update for a start that moved without an acknowledgement (records were skipped)."""
        if self.start_offset <= self._saved_start:
            return None
        self._updates += 1
        self._saved_start = self.start_offset
        return Update(self._updates, self.start_offset, (), self._runs.complete)

    def _move_start(self) -> None:
        start = self._complete_until(0)
        if start > self.start_offset:
            self._runs.drop_before(start)

    def _complete_until(self, number: int) -> Offset:
        """The first offset that is not done, if update `number` is written."""
        for run in self._runs:
            pending = run.before is not None and run.update != number
            if pending or run.delivery.state not in COMPLETE:
                return run.first
        return self.end_offset + 1

    def _update(self, changed: Sequence[Run]) -> Update:
        start = self._complete_until(self._updates)
        before = min(start, self.end_offset + 1) - self.start_offset
        batches: list[StateBatch] = []
        for run in sorted(changed, key=lambda run: run.first):
            if run.last < start:
                continue
            state, count = run.delivery.state, run.delivery.deliveries
            if batches and batches[-1][1:] == (run.first - 1, state, count):
                batches[-1] = batches[-1]._replace(last=run.last)
            else:
                batches.append(StateBatch(run.first, run.last, state, count))
        return Update(self._updates, start, tuple(batches), self._runs.complete - before)

    def validate(self) -> None:
        """Assert every invariant; for tests, after each step."""
        self._runs.validate()
        for run in self._runs:
            assert (run.delivery.state is ACQUIRED) == bool(run.delivery.member_id), run
            if run.delivery.state is ACQUIRED:
                assert run.delivery.deadline_ms >= self.next_deadline_ms(), run
        first = next(iter(self._runs), None)
        assert first is None or first.before or first.delivery.state not in COMPLETE, first


def _by_event(batch: Acknowledged) -> list[tuple[Offset, Offset, RecordEvent]]:
    types = batch.types
    if len(types) == 1:
        return [(batch.first, batch.last, EVENT_OF[types[0]])]
    parts: list[tuple[Offset, Offset, RecordEvent]] = []
    for number, kind in enumerate(types):
        offset, event = batch.first + number, EVENT_OF[kind]
        if parts and parts[-1][2] is event:
            parts[-1] = (parts[-1][0], offset, event)
        else:
            parts.append((offset, offset, event))
    return parts


def check_types(first: Offset, last: Offset, types: Sequence[int]) -> bool:
    """Whether an acknowledgement is well-formed: one type, or one per offset, all of them known."""
    known = all(kind in AcknowledgeType._value2member_map_ for kind in types)
    return 0 <= first <= last and known and len(types) in (1, last - first + 1)


def _check_acknowledgeable(run: Run, member_id: str, event: RecordEvent) -> None:
    if run.before is not None:
        raise KafkaError(ErrorCode.invalid_record_state, IN_TRANSITION)
    next_state(run.delivery.state, event)
    if run.delivery.member_id != member_id:
        raise KafkaError(ErrorCode.invalid_record_state, NOT_OWNER)


def _is_locked_by(run: Run, member_id: str) -> bool:
    return run.delivery.state is ACQUIRED and run.delivery.member_id == member_id


def _after(delivery: Delivery, event: RecordEvent, limits: Limits) -> Delivery:
    state = next_state(delivery.state, event)
    if state is AVAILABLE and delivery.deliveries >= limits.delivery_count_max:
        state = ARCHIVED
    return Delivery(state, delivery.deliveries)


def _cut(acquired: Sequence[Acquired], batch_size: int) -> list[Acquired]:
    """Joins adjacent parts until one has `batch_size` records."""
    cut: list[Acquired] = []
    for part in acquired:
        if (
            cut
            and cut[-1].last + 1 == part.first
            and cut[-1].delivery_count == part.delivery_count
            and cut[-1].last - cut[-1].first + 1 < batch_size
        ):
            cut[-1] = cut[-1]._replace(last=part.last)
        else:
            cut.append(part)
    return cut
