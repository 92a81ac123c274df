"""A share partition with the log that it reads, its lock timer and its writes.

Writes of one share partition go out one after the other, so that an older one never overwrites a
newer one. Updates that arrive during a write are sent together after it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from odradek_broker.partition.partition import Partition
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Cancellable
from odradek_broker.share.config import ShareConfig
from odradek_broker.share.metrics import ShareMetrics
from odradek_broker.share.reading import read_batches
from odradek_broker.share.share_partition import (
    Acknowledged,
    Acquired,
    SharePartition,
    Update,
    Wanted,
)
from odradek_broker.share.state import Key, SharePartitionState, combine
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch

logger = logging.getLogger(__name__)

FENCED = (
    ErrorCode.fenced_leader_epoch,
    ErrorCode.fenced_state_epoch,
    ErrorCode.invalid_request,  # the state was deleted
)
# Batches of control records that are skipped in one fetch, before others get their turn.
READS_MAX = 16


class Persister(Protocol):
    async def read(self, key: Key, leader_epoch: LeaderEpoch) -> SharePartitionState: ...

    async def write(
        self, key: Key, state_epoch: int, leader_epoch: LeaderEpoch, update: Update
    ) -> None: ...


class HeldPartition:
    """`failed` is set when another leader, or another state, has taken over: it is then loaded
    again by the next request."""

    def __init__(
        self,
        key: Key,
        partition: Partition,
        share: SharePartition,
        persister: Persister,
        clock: Clock,
        config: Callable[[], ShareConfig],
        metrics: ShareMetrics,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.share = share
        self.failed = False
        self._waiters: dict[Callable[[], None], None] = {}  # fetches that wait for free records
        self._persister = persister
        self._clock = clock
        self._config = config
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._timer: Cancellable | None = None
        self._queue: list[tuple[Update, asyncio.Future[None] | None]] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_valid(self) -> bool:
        partition = self.partition
        return (
            not self.failed
            and partition.leading is not None
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def is_idle(self) -> bool:
        return self._writer is None and not self._queue

    # --- delivery ---------------------------------------------------------------------------------

    def acquire(
        self, member_id: str, wanted: Wanted, bytes_max: int, *, whole: bool
    ) -> tuple[bytes, list[Acquired]]:
        """Records for this member, and which of them it has acquired; nothing if none is free."""
        config, share = self._config(), self.share
        share.log_start_moved(self.partition.log.log_start_offset)
        self.check_locks()
        data, acquired = b"", list[Acquired]()
        for _ in range(READS_MAX):
            offset = share.next_fetch_offset()
            if not share.can_acquire(config.limits):
                break
            read = read_batches(
                self.partition,
                offset,
                bytes_max,
                partial(share.has_available, offset, wanted.records_max),
                read_committed=config.read_committed,
                whole=whole,
            )
            if read is None:
                break
            acquired = share.acquire(
                member_id,
                offset,
                read.batches,
                wanted,
                config.limits,
                self._clock.monotonic_ms(),
            )
            if acquired:
                data = read.slice(acquired)
                break
            if share.next_fetch_offset() == offset:
                break
        self._metrics.count_acquired(acquired)
        self._save(share.unsaved())
        self._set_timer()
        return data, acquired

    async def acknowledge(self, member_id: str, batches: list[Acknowledged]) -> None:
        """Returns when it is durable; KafkaError if it was refused or could not be written."""
        self.check_locks()
        now_ms = self._clock.monotonic_ms()
        update = self.share.acknowledge(member_id, batches, self._config().limits, now_ms)
        self._set_timer()
        if update is not None:
            written = self._loop.create_future()
            self._put(update, written)
            await written
        self._metrics.count_acknowledged(batches)

    def release(self, member_id: str) -> None:
        """The member's session is over."""
        self._save(self.share.release(member_id, self._config().limits))
        self.wake()

    def check_locks(self) -> None:
        """Frees the locks that have timed out."""
        before = self.share.lock_timeouts
        update = self.share.expire(self._config().limits, self._clock.monotonic_ms())
        self._metrics.lock_timeouts += self.share.lock_timeouts - before
        if update is not None:
            self._save(update)
            self.wake()

    def wake(self) -> None:
        for waiter in list(self._waiters):
            waiter()

    def wait(self, waiter: Callable[[], None]) -> None:
        """Calls it when records may have become free, until `stop_waiting`."""
        self._waiters[waiter] = None

    def stop_waiting(self, waiter: Callable[[], None]) -> None:
        self._waiters.pop(waiter, None)

    def _set_timer(self) -> None:
        deadline_ms = self.share.next_deadline_ms()
        if self._timer is not None or deadline_ms == float("inf") or self.failed:
            return
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 1.0)
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.is_valid:
            self.check_locks()
            self._set_timer()

    def close(self) -> None:
        """Another broker leads, or the broker stops; a write under way is finished."""
        self.failed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    # --- writing ----------------------------------------------------------------------------------

    def _save(self, update: Update | None) -> None:
        if update is not None:
            self._put(update, None)

    def _put(self, update: Update, written: "asyncio.Future[None] | None") -> None:
        self._queue.append((update, written))
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._queue:
                queue, self._queue = self._queue, []
                error = await self._write(_merged([update for update, _ in queue]))
                for update, written in queue:
                    self.share.settle(update, written=error is None)
                    if written is None or written.done():
                        continue
                    if error is None:
                        written.set_result(None)
                    else:
                        written.set_exception(error)
                self._set_timer()
                self.wake()
        finally:
            self._writer = None

    async def _write(self, update: Update) -> KafkaError | None:
        try:
            await self._persister.write(self.key, self.share.state_epoch, self.leader_epoch, update)
        except KafkaError as error:
            self._metrics.write_failures += 1
            logger.warning(
                "share group %s: the state of partition %s was not written: %s",
                self.key.group_id,
                self.partition.topic_partition,
                error,
            )
            if error.code in FENCED:
                self.close()
            return error
        return None


def _merged(updates: list[Update]) -> Update:
    """All updates as one: the newer wins where two change the same records."""
    merged = updates[0]
    for update in updates[1:]:
        start = max(merged.start_offset, update.start_offset)
        merged = Update(
            update.number,
            start,
            combine(merged.batches, update.batches, start),
            update.complete,
        )
    return merged
