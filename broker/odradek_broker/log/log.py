"""The log of one partition: append opaque batches, read ranges of them.

The one class of the storage engine that the rest of the broker uses. It belongs to the event loop's
thread; only `flush` may run in another one. An append assigns offsets and queues the bytes;
`write_pending` hands everything that is queued to the kernel with one writev. So a loop pass over
many requests costs one system call per partition:

    append_as_leader  ─► offsets assigned, `log_end_offset` moves, bytes queued
    write_pending     ─► bytes in the page cache, `written_offset` moves, readers see them
    flush             ─► bytes on disk, `recovery_point` moves

Example: 50 produce requests of one record each arrive in one loop pass at an empty log. After the
appends `log_end_offset` is 50 and `written_offset` 0; after the write both are 50.

Offsets may have gaps (compaction, replication of a compacted log); a read of an offset in a
gap begins with the next batch. `state.py` lists the parts that do the work.
"""

import threading
from collections.abc import Sequence

from odradek_broker.log.appending import Appender
from odradek_broker.log.file_names import FUTURE_DIR
from odradek_broker.log.flushing import Flusher
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.producer_state import EndTxnMarker, ProducerState
from odradek_broker.log.reading import LogReader
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.state import LoadedLog, LogState
from odradek_broker.log.trimming import Trimmer
from odradek_broker.log.types import AbortedTransaction, AppendInfo, FileRange, TimestampOffset
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.byte_range import ByteRange
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId, TopicPartition


class Log:
    """Invariants are documented at `LogState`, `Appender` and `Flusher`; `validate` checks them."""

    __slots__ = (
        "_appender",
        "_flusher",
        "_reader",
        "_state",
        "_trimmer",
        "log_dir",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        self.log_dir = log_dir
        self.topic_partition = topic_partition
        self.topic_id = loaded.topic_id
        state = LogState(log_dir, directory, topic_partition, config, loaded)
        self._state = state
        self._flusher = Flusher(state, loaded.recovery_point, loaded.checkpointed)
        self._appender = Appender(state, self._flusher)
        self._reader = LogReader(state)
        self._trimmer = Trimmer(state, self._appender, self._flusher)

    def __repr__(self) -> str:
        return f"Log({self.dir}, {self.log_start_offset}..{self.log_end_offset})"

    # Identity

    @property
    def dir(self) -> str:
        return self._state.dir

    @property
    def config(self) -> LogConfig:
        return self._state.config

    def update_config(self, config: LogConfig) -> None:
        self._state.config = config

    @property
    def segments(self) -> list[LogSegment]:
        """By base offset. Replaced, never changed in place: other threads may read it."""
        return self._state.segments

    @property
    def active(self) -> LogSegment:
        return self._state.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments)

    @property
    def log_start_offset(self) -> Offset:
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The next offset to be assigned; counts queued batches."""
        return self._state.log_end_offset

    @property
    def written_offset(self) -> Offset:
        """Readers see nothing at or past it."""
        return self._state.written_offset

    @property
    def high_watermark(self) -> Offset:
        """Set by the partition."""
        return self._state.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: Offset) -> None:
        self._state.high_watermark = offset

    @property
    def last_stable_offset(self) -> Offset:
        """Readers of committed transactions see nothing at or past it."""
        state = self._state
        producers = state.producers
        if not producers.ongoing and not producers.unreplicated:
            return state.high_watermark
        producers.forget_replicated(state.high_watermark)
        first = producers.first_unstable_offset
        if first is None:
            return state.high_watermark
        return min(max(first, state.log_start_offset), state.high_watermark)

    @property
    def epochs(self) -> LeaderEpochs:
        return self._state.epochs

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch` and where it ends; (-1, -1) if unknown (KIP-101)."""
        return self._state.epochs.end_offset_for(epoch, self._state.log_end_offset)

    @property
    def producers(self) -> ProducerState:
        return self._state.producers

    @property
    def truncations(self) -> int:
        """How often the end of the log was cut off since it was loaded."""
        return self._state.truncations

    @property
    def cleaned_offset(self) -> Offset:
        """Everything below was compacted once; -1: nothing ever was. Set by the cleaner."""
        return self._state.cleaned_offset

    @cleaned_offset.setter
    def cleaned_offset(self, offset: Offset) -> None:
        self._state.cleaned_offset = offset

    @property
    def removed(self) -> bool:
        """Its directory was renamed, to be deleted. Set by the log manager."""
        return self._state.removed

    @removed.setter
    def removed(self, removed: bool) -> None:
        self._state.removed = removed

    # Appending

    def append_as_leader(
        self,
        records: ByteRange | Buffer,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        from_client: bool = True,
    ) -> AppendInfo:
        """Validate, assign offsets, queue.

        With `from_client=False` (coordinators, controller) sequence numbers are not checked.
        NoRoomError if the directory is short of space (`room.py`).
        """
        return self._appender.append_as_leader(records, leader_epoch, now_ms, from_client)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Queue batches of the leader as they are: offsets and epochs are kept, CRC checked."""
        return self._appender.append_as_follower(records)

    def append_control(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        marker: EndTxnMarker,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Queue the marker that ends a transaction. KafkaError if its epochs are too old.

        If the producer state shows that this marker was written already, the answer is that of a
        duplicate at the end of the log.
        """
        return self._appender.append_control(
            producer_id, producer_epoch, marker, leader_epoch, now_ms, transaction_version
        )

    def write_pending(self) -> None:
        """Hand everything queued to the kernel: one writev. LogDirError if the disk fails.

        Without a descriptor for the file (`LogDirError.offline` is False) everything stays queued
        and a later call writes it.
        """
        self._appender.write_pending()

    def forget_pending(self) -> None:
        """Drop queued batches: the log is being deleted."""
        self._appender.forget_pending()

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, upper_bound: Offset, *, min_one_batch: bool = True
    ) -> tuple[FileRange | None, Offset]:
        """Up to `max_bytes` of batches from the one with `offset` on, below `upper_bound`.

        Returns the range and the base offset of its first batch; (None, offset) if there is
        nothing to read. With `min_one_batch` the first batch comes whole, however large. The
        last batch may be cut by `max_bytes`, as Kafka does; clients expect that.
        """
        return self._reader.read(offset, max_bytes, upper_bound, min_one_batch)

    def aborted_in(
        self, records: FileRange, first_offset: Offset, from_offset: Offset, to_offset: Offset
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in the result of `read`, within [from, to).

        A consumer with isolation.level=read_committed skips their records. `first_offset` is the
        one that `read` returned. The list may hold a few that begin shortly after the range.
        """
        return self._reader.aborted_in(records, first_offset, from_offset, to_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with at least this timestamp; None if there is none."""
        return self._reader.offset_for_timestamp(timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None if the log is empty."""
        return self._reader.max_timestamp_offset()

    # Trimming and replacing

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply `retention.ms`, `retention.bytes` and the log start; returns how many went."""
        return self._trimmer.delete_old_segments(now_ms)

    def advance_log_start_offset(self, offset: Offset) -> None:
        """Delete the records before it (DeleteRecords); retention deletes their segments."""
        self._trimmer.advance_log_start_offset(offset)

    def move_log_start(self, offset: Offset) -> None:
        """The same for a copy of a log: also past its own high watermark."""
        self._state.move_log_start(offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drop all batches that reach to this offset or past it (a follower's step back)."""
        self._trimmer.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: Offset, now_ms: int = 0) -> None:
        """Drop everything and continue, empty, at this offset (a follower too far behind)."""
        self._trimmer.truncate_fully_and_start_at(offset, now_ms)

    def new_cleaned_segment(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """An empty segment with the suffix `.cleaned`; the cleaner fills, seals and syncs it."""
        return self._trimmer.new_cleaned_segment(base_offset, now_ms)

    def replace_segments(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], now_ms: int
    ) -> bool:
        """Swap in the cleaned segment; False if retention has deleted `old` in the meantime.

        Only renames files; the cleaner's thread then makes that durable (`sync_dir`).
        """
        return self._trimmer.replace_segments(old, new, now_ms)

    # Flushing

    @property
    def recovery_point(self) -> Offset:
        """Everything below it was fsynced."""
        return self._flusher.recovery_point

    @property
    def flushing(self) -> threading.Lock:
        """Held during a flush. A caller that holds it keeps the next flush from starting."""
        return self._flusher.lock

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush."""
        return self._flusher.is_due(now_ms)

    def flush(self, now_ms: int | None = None) -> None:
        """fsync everything written so far and move the recovery point. Safe in a worker thread."""
        self._flusher.flush(now_ms)

    def flush_locked(self, now_ms: int | None = None) -> None:
        """The same for a caller that holds `flushing`."""
        self._flusher.flush_locked(now_ms)

    def before_checkpoint(self, recovery_point: Offset) -> None:
        """A checkpoint file with this recovery point will be written."""
        self._flusher.checkpoint_max = max(self._flusher.checkpoint_max, recovery_point)

    def after_checkpoint(self, recovery_point: Offset) -> None:
        """The checkpoint file on disk has this recovery point."""
        self._flusher.checkpoint_max = recovery_point

    def close(self, *, sync: bool = True) -> None:
        """Write and sync everything, so that the next start need not recover.

        With `sync=False` the caller syncs the whole file system and then calls `mark_synced`.
        """
        self._appender.write_pending()
        state = self._state
        if state.changed:
            with state.using_files():
                state.segments[-1].seal()
                self._appender.take_snapshot()
                self._flusher.close_files(sync=sync)

    def mark_synced(self) -> None:
        """See `close`."""
        self._flusher.mark_synced()

    # Moving to another directory

    @property
    def is_future(self) -> bool:
        """Whether it is a copy that will replace the replica's log (`future_logs.py`)."""
        return self._state.dir.endswith(FUTURE_DIR)

    def relocate(self, directory: str) -> None:
        """The directory was renamed to this; the caller holds `flushing`."""
        self._state.dir = directory
        for segment in self._state.segments:
            segment.relocate(directory)

    def inherit(self, source: "Log") -> None:
        """Take over and save what batches alone do not show: epochs without a record, producers
        whose records retention has removed. OSError if it cannot be saved."""
        state = self._state
        state.epochs = LeaderEpochs(list(source.epochs.entries))
        state.epochs.truncate_from_start(state.log_start_offset)
        state.epochs.dirty = True
        state.high_watermark = source.high_watermark
        state.producers = source.producers
        state.producers.snapshot_offset = -1
        self._flusher.save_epochs(sync=False)
        self._appender.take_snapshot()

    def validate(self) -> None:
        """Check the invariants; tests call it after each step."""
        assert self.log_start_offset <= self.written_offset <= self.log_end_offset
        assert self.high_watermark <= self.written_offset
        assert self.recovery_point <= self.written_offset
        for segment, end_offset in zip(self.segments, self._state.end_offsets(), strict=True):
            active = segment is self.segments[-1]
            assert segment.base_offset <= end_offset
            assert segment.sealed != active
            assert segment.written == segment.size or active
            assert segment.synced or segment.size == 0 or self.recovery_point < end_offset or active
        assert self.active.size - self.active.written == self._appender.pending_bytes
