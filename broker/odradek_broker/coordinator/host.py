"""One shard with its log: decide, append, replay, respond when committed. Does no I/O.

The log is a port (`AppendLog`), so that the service drives a host with a partition and futures,
and the simulator with a log of its own:

    host.settle(result, reply, now)    appends and replays the records; calls `reply` when they
                                       are committed, at once if nothing is uncommitted
    host.committed(high_watermark)     everything below is committed
    host.fail(error)                   the partition moved away: all waiting requests fail
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.coordinator.result import (
    CoordinatorRecord,
    CoordinatorResult,
    DeferredResponse,
    Moment,
    Producer,
)
from odradek_broker.coordinator.shard import S
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import NO_PRODUCER_ID, Offset
from odradek_protocol.records.record_batch import HEADER_BYTES
from odradek_protocol.records.records import NO_PRODUCER, BatchProducer, Record, build_batch

T = TypeVar("T")

Reply = Callable[[Any], None]  # gets the response, or a KafkaError

# The most bytes that a record takes besides its key and value: lengths, deltas, header count.
RECORD_OVERHEAD_BYTES = 32


class AppendLog(Protocol):
    @property
    def batch_bytes_max(self) -> int: ...

    def append(self, batch: bytes) -> Offset:
        """Queues the batch; returns its last offset. Raises KafkaError if nothing was queued."""


class ReloadNeeded(Exception):  # noqa: N818  (a signal to the service, not an error)
    """Records could not be appended, but state that is in no record has changed already."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ShardHost(Generic[S]):
    """Invariants: `_waiting` ascends by offset, and all of its offsets are uncommitted; a
    DeferredResponse in `_parked` was returned by the shard and has no response yet."""

    def __init__(self, shard: S, log: AppendLog, *, codec: int = 0) -> None:
        self.shard = shard
        self.last_offset: Offset = -1  # the last one that was replayed
        self.high_watermark: Offset = 0  # everything below is committed
        self._log = log
        self._codec = codec
        self._waiting: deque[tuple[Offset, list[tuple[Reply, Any]]]] = deque()
        self._parked: dict[DeferredResponse, Reply] = {}

    @property
    def all_committed(self) -> bool:
        return self.last_offset < self.high_watermark

    def settle(
        self,
        result: CoordinatorResult[T],
        reply: Reply | None,
        now: Moment,
        producer: Producer | None = None,
    ) -> bool:
        """Carries out a decision; True if responses wait for the high watermark.

        Raises KafkaError if nothing was appended and the shard is as before the decision, and
        ReloadNeeded if nothing was appended but the shard has changed.
        """
        if result.records:
            try:
                self._append(result, now, producer)
            except KafkaError as error:
                if result.volatile:
                    raise ReloadNeeded(error) from error
                raise
        answers: list[tuple[Reply, Any]] = []
        if reply is not None:
            if isinstance(result.response, DeferredResponse):
                # First: the decision that parks a request may also answer it (the last to join).
                self._parked[result.response] = reply
            else:
                answers.append((reply, result.response))
        for deferred, answer in result.answers:
            parked = self._parked.pop(deferred, None)
            if parked is not None:
                answers.append((parked, answer))
        if not answers:
            return False
        if self.all_committed:
            _give(answers)
            return False
        self._waiting.append((self.last_offset, answers))
        return True

    def _append(self, result: CoordinatorResult[T], now: Moment, producer: Producer | None) -> None:
        for records in self._batches(result):
            batch = build_batch(
                [Record(n, now.wall_ms, key, value) for n, (key, value) in enumerate(records)],
                codec=self._codec,
                producer=BatchProducer(producer.id, producer.epoch) if producer else NO_PRODUCER,
                transactional=producer is not None,
            )
            if len(batch) > self._log.batch_bytes_max:
                raise KafkaError(
                    ErrorCode.message_too_large, f"the batch of {len(batch)} bytes is too large"
                )
            last = self._log.append(batch)
            first = last - len(records) + 1
            self.last_offset = last
            producer_id = producer.id if producer else NO_PRODUCER_ID
            for number, record in enumerate(records):
                self.shard.replay(first + number, producer_id, record)

    def _batches(self, result: CoordinatorResult[T]) -> Iterator[Sequence[CoordinatorRecord]]:
        if result.atomic:
            yield result.records
            return
        batch: list[CoordinatorRecord] = []
        size = HEADER_BYTES
        for record in result.records:
            more = len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES
            if batch and size + more > self._log.batch_bytes_max:
                yield batch
                batch, size = [], HEADER_BYTES
            batch.append(record)
            size += more
        yield batch

    def appended(self, last_offset: Offset, reply: Reply, answer: Any) -> bool:
        """A transaction marker was appended; as `settle` otherwise."""
        self.last_offset = last_offset
        if self.all_committed:
            reply(answer)
            return False
        self._waiting.append((last_offset, [(reply, answer)]))
        return True

    def committed(self, high_watermark: Offset) -> None:
        self.high_watermark = max(self.high_watermark, high_watermark)
        waiting = self._waiting
        while waiting and waiting[0][0] < self.high_watermark:
            _give(waiting.popleft()[1])

    def refuse_waiting(self, error: KafkaError) -> None:
        """The commit of the awaited records is uncertain. The state stays: it is in the log."""
        waiting, self._waiting = self._waiting, deque()
        for _, answers in waiting:
            _give([(reply, error) for reply, _ in answers])

    def fail(self, error: KafkaError) -> None:
        """Fails all waiting and parked requests; the host is not used any more."""
        self.refuse_waiting(error)
        parked, self._parked = self._parked, {}
        _give([(reply, error) for reply in parked.values()])


def _give(answers: Sequence[tuple[Reply, Any]]) -> None:
    for reply, answer in answers:
        reply(answer)
