"""The leader's state and the deferred write: what happens to partitions at the end of a loop pass.

Requests queue their batches (`mark_dirty`). At the end of the pass each partition that got data is
written with one writev, however many requests came; then produce requests are acknowledged, and
after their answers have left, waiting fetches are answered, each once however many of its
partitions moved.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from odradek_broker.log.errors import RETRY_SECONDS, LogDirError
from odradek_broker.partition import leader_events, leader_state
from odradek_broker.partition.hosted import HostedPartitions
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.waiting import ProgressListener
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Scheduler, Threads

logger = logging.getLogger(__name__)

# Partitions looked at in one step of `check_isrs`: far less than a slice.
ISRS_PER_STEP = 100


class WritePass:
    def __init__(
        self,
        hosted: HostedPartitions,
        clock: Clock,
        scheduler: Scheduler,
        threads: Threads,
        on_directory_error: Callable[[LogDirError], None],
    ) -> None:
        self._hosted = hosted
        self._clock = clock
        self._scheduler = scheduler
        self._threads = threads
        self._on_directory_error = on_directory_error
        self.isr_expands = 0
        self.isr_shrinks = 0
        self._dirty: dict[Partition, None] = {}
        self._append_time_ms = -1  # unknown in this loop pass

    # --- the leader's state -----------------------------------------------------------------

    def step(self, partition: Partition, event: leader_events.Event) -> None:
        """Give the leader of a partition an event. Raises KafkaError for a fetch it refuses."""
        if partition.leading is not None:
            now_ms = self._clock.monotonic_ms()
            in_sync = len(partition.leading.isr)
            moved = self.obey(partition, leader_state.step(partition.leading, event, now_ms))
            self.isr_expands += len(partition.leading.isr) > in_sync
            self.isr_shrinks += len(partition.leading.isr) < in_sync
            if moved or partition.awaits_deletion:
                self.mark_dirty(partition)

    def obey(self, partition: Partition, instructions: leader_events.Instructions) -> bool:
        """Carries out the instructions of the leader's state; True if the high watermark moved."""
        moved = False
        for instruction in instructions:
            if isinstance(instruction, leader_events.AdvanceHighWatermark):
                partition.log.high_watermark = instruction.high_watermark
                moved = True
            elif self._hosted.replication is not None:
                self._hosted.replication.propose(partition, instruction)
        return moved

    def check_isrs(self) -> Iterator[None]:
        """Which followers fell behind, and which may join, in all partitions that are led here."""
        event = leader_events.CheckIsr()
        for at, partition in enumerate(list(self._hosted.by_name.values())):
            if partition.leading is not None and partition.leading.followers:
                self.step(partition, event)
            if at % ISRS_PER_STEP == 0:
                yield None

    # --- the deferred write -------------------------------------------------------------------

    def append_time_ms(self) -> int:
        """Wall time for an append, looked up once per loop pass."""
        if self._append_time_ms < 0:
            self._append_time_ms = self._clock.now_ms()
            self._scheduler.call_soon(self._forget_append_time)
        return self._append_time_ms

    def _forget_append_time(self) -> None:
        self._append_time_ms = -1

    def mark_dirty(self, partition: Partition) -> None:
        """It has queued appends, or moved on: dealt with at the end of this loop pass."""
        if not self._dirty:
            self._scheduler.call_soon(self.end_of_pass)
        self._dirty[partition] = None

    def forget(self, partition: Partition) -> None:
        """The partition lost its role: its queued batches are not written by this pass."""
        self._dirty.pop(partition, None)

    def end_of_pass(self) -> None:
        dirty, self._dirty = self._dirty, {}
        now_ms = self._clock.monotonic_ms()
        progressed: dict[ProgressListener, list[Partition]] = {}
        for partition in dirty:
            try:
                self._write_and_settle(partition, now_ms)
            except LogDirError as error:
                self._on_directory_error(error)
                if not error.offline:  # everything is still queued
                    self._scheduler.call_later(RETRY_SECONDS, self._write_again, partition)
            except Exception:
                # A failure in one partition must not hold up requests that wait for others.
                logger.exception("%s; this is a bug in Odradek", partition.topic_partition)
            for listener in partition.take_awake():
                progressed.setdefault(listener, []).append(partition)
        if progressed:
            # After the acknowledgements that were given above have left.
            self._scheduler.call_soon(partial(self._report_progress, progressed))

    def _write_again(self, partition: Partition) -> None:
        if self._hosted.by_name.get(partition.topic_partition) is partition:
            self.mark_dirty(partition)

    def _report_progress(self, progressed: "dict[ProgressListener, list[Partition]]") -> None:
        for listener, partitions in progressed.items():
            try:
                listener.on_progress(partitions)
            except Exception:
                logger.exception("answering a fetch; this is a bug in Odradek")

    def _write_and_settle(self, partition: Partition, now_ms: float) -> None:
        partition.log.write_pending()
        leading = partition.leading
        if leading is not None:
            if partition.must_flush:
                self._flush_first(partition)
            elif partition.log.written_offset > leading.log_end_offset:
                written = leader_events.Written(partition.log.written_offset)
                self.obey(partition, leader_state.step(leading, written, now_ms))
        partition.settle()

    def _flush_first(self, partition: Partition) -> None:
        """`flush.messages` asks for an fsync: in a thread; acknowledgements wait until it is done.

        Appends that arrive meanwhile share the next one (group commit).
        """
        if partition.flushing:
            return
        partition.flushing = True
        written = partition.log.written_offset
        leading = partition.leading

        def done(error: BaseException | None) -> None:
            partition.flushing = False
            if isinstance(error, LogDirError):
                self._on_directory_error(error)
                if not error.offline:
                    self._scheduler.call_later(RETRY_SECONDS, self._write_again, partition)
                return
            assert error is None, error
            if partition.leading is leading:
                self.step(partition, leader_events.Written(written))
            self.mark_dirty(partition)

        self._threads.run(partition.log.flush, done)
