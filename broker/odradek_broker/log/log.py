"""The log of one partition: append opaque batches, read ranges of them.

Owned by the event loop's thread; only `flush` may run in another one. An append assigns
offsets and queues the bytes; `write_pending` hands all that is queued to the kernel with one
writev. So a loop pass over many requests costs one system call per partition:

    append_as_leader  ─► offsets assigned, `log_end_offset` moves, bytes queued
    write_pending     ─► bytes in the page cache, `written_offset` moves, readers see them
    flush             ─► bytes on disk, `recovery_point` moves

Offsets may have gaps (compaction, replication of a compacted log); a read of an offset in a
gap begins with the next batch.
"""

import errno
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from odradek_broker.log.control import build_marker, parse_marker
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_names import CLEANED, FUTURE_DIR
from odradek_broker.log.flushing import finish, flush, publishing
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.lookup import find_aborted, find_by_timestamp, find_max_timestamp
from odradek_broker.log.producer_replay import snapshot_path
from odradek_broker.log.producer_snapshot import encode_snapshot
from odradek_broker.log.producer_state import EndTxnMarker, ProducerState
from odradek_broker.log.reading import find_range, segment_index
from odradek_broker.log.rolling import must_roll
from odradek_broker.log.room import Room
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from odradek_broker.log.trimming import (
    delete_old_segments,
    move_log_start,
    replace,
    truncate,
    truncate_fully,
)
from odradek_broker.log.txn_index import AbortedTxn
from odradek_broker.log.types import AbortedTransaction, AppendInfo, FileRange, TimestampOffset
from odradek_broker.log.validation import validate_for_append, validate_for_replica
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.byte_range import ByteRange, whole
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import ZERO_UUID, LeaderEpoch, Offset, ProducerId, TopicPartition
from odradek_protocol.records.record_batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    queue_stamped,
)
from odradek_protocol.records.records import Record

logger = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1


class Log:
    """Invariants (`validate` checks them in tests):
    log_start_offset, high_watermark <= written_offset <= log_end_offset
    segments ascend by base offset; the last one is active, the others are sealed
    only the active segment has queued bytes: those of `_pending`
    recovery_point <= written_offset; a sealed segment below it is synced
    `segments` is replaced, never changed in place: other threads may be reading the old list
    """

    __slots__ = (
        "_aborted",
        "_pending",
        "changed",
        "checkpoint_max",
        "checkpointed",
        "cleaned_offset",
        "config",
        "dir",
        "dir_synced",
        "epochs",
        "flushed_ms",
        "flushing",
        "high_watermark",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "removed",
        "room",
        "segments",
        "topic_id",
        "topic_partition",
        "truncations",
        "written_offset",
    )

    def __init__(
        self,
        log_dir: LogDir,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: list[LogSegment],
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        recovery_point: Offset,
        epochs: LeaderEpochs,
        producers: ProducerState,
        topic_id: UUID = ZERO_UUID,
        now_ms: int = 0,
        directory: str = "",
    ) -> None:
        self.log_dir = log_dir
        self.room: Room = log_dir.room
        self.topic_partition = topic_partition
        self.dir = directory or f"{log_dir.path}/{topic_partition}"
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset  # counts what is queued
        self.written_offset = log_end_offset  # readers see nothing at or past it
        self.recovery_point = recovery_point  # all below was fsynced
        # The recovery point in the checkpoint file is at least `checkpointed`, and at most
        # `checkpoint_max`: a newer one may be on its way to the disk.
        self.checkpointed: Offset = recovery_point
        self.checkpoint_max: Offset = recovery_point
        self.cleaned_offset: Offset = -1  # all below was compacted once; -1: nothing ever was
        self.high_watermark: Offset = log_start_offset  # set by the partition
        self.flushed_ms = now_ms  # when the last flush took place
        self.epochs = epochs
        self.producers = producers
        self.removed = False  # its directory was renamed, to be deleted
        self._pending: list[Buffer] = []
        self._aborted: list[AbortedTxn] = []  # for the transaction index, once written
        self.truncations = 0  # how often the end was cut off
        self.changed = recovery_point != log_end_offset  # since it was closed
        self.dir_synced = False  # the names of all its files are durable
        self.flushing = threading.Lock()  # one flush at a time

    def __repr__(self) -> str:
        return f"Log({self.dir}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def is_future(self) -> bool:
        """It is a copy that will take the place of the replica's log (`future_logs.py`)."""
        return self.dir.endswith(FUTURE_DIR)

    def relocate(self, directory: str) -> None:
        """Its directory was renamed; the caller holds `flushing`."""
        self.dir = directory
        for segment in self.segments:
            segment.relocate(directory)

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    @property
    def cleanable_segments(self) -> list[LogSegment]:
        """Those that recovery will never read again, whatever happens.

        Compaction makes gaps. Recovery takes a gap for lost data where it can (see
        `recovery.py`), so only what the recovery checkpoint on disk covers is compacted.
        """
        ends = zip(self.segments[:-1], self.end_offsets(), strict=False)
        return [segment for segment, end_offset in ends if end_offset <= self.checkpointed]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def update_config(self, config: LogConfig) -> None:
        self.config = config

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
        NoRoomError if the directory's free space is to be kept for others (`room.py`).
        """
        if self.log_dir.failure is not None:
            self.log_dir.check()
        if not isinstance(records, ByteRange):
            records = whole(records)
        validated = validate_for_append(records, self.config, now_ms, from_client=from_client)
        headers = validated.headers
        for header in headers:
            if header.producer_id >= 0 and not header.attributes & CONTROL_BIT:
                try:
                    original = self.producers.check(header, check_sequence=from_client)
                except KafkaError as error:
                    if error.code == ErrorCode.out_of_order_sequence_number and self.room.low:
                        # Pipelined behind one that was refused for want of space: the same answer,
                        # or the producer would take a new epoch and send again what is written.
                        self.room.admit(len(records), from_client)
                    raise
                if original is not None:
                    return AppendInfo(
                        original.first_offset, original.last_offset, original.timestamp, True
                    )
        self.room.admit(len(records), from_client)
        first_offset = self.log_end_offset
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        self._append(validated.records, headers, now_ms, leader_epoch)
        last_offset = self.log_end_offset - 1
        return AppendInfo(first_offset, last_offset, validated.log_append_time_ms, False)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Queue batches of the leader as they are: offsets and epochs are kept, CRC checked."""
        if self.log_dir.failure is not None:
            self.log_dir.check()
        headers = validate_for_replica(records)
        if not headers:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, NO_TIMESTAMP, False)
        if headers[0].base_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: the leader sent offset {headers[0].base_offset}, "
                f"expected {self.log_end_offset} or more",
            )
        self.room.admit(len(records), False)
        for header in headers:
            if header.partition_leader_epoch > self.epochs.latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._append(records, headers, NO_TIMESTAMP, None)
        return AppendInfo(headers[0].base_offset, headers[-1].last_offset, NO_TIMESTAMP, False)

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

        One that is known to be here already is a duplicate, at the end of the log or before.
        """
        written = self.producers.check_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, transaction_version
        )
        if written:
            last = self.log_end_offset - 1
            return AppendInfo(last, last, NO_TIMESTAMP, True)
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        return self.append_as_leader(batch, leader_epoch, now_ms, from_client=False)

    def _append(
        self,
        records: ByteRange | Buffer,
        headers: list[BatchHeader],
        now_ms: int,
        leader_epoch: LeaderEpoch | None,
    ) -> None:
        """Queue batches; with a leader epoch they are stamped with it and with their offsets."""
        config = self.config
        size = len(records)
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size} bytes do not fit into segment.bytes={config.segment_bytes}",
            )
        segment = self.segments[-1]
        if leader_epoch is None:
            base, last = headers[0].base_offset, headers[-1].last_offset
        else:
            base = last = self.log_end_offset
            for header in headers:
                last += header.last_offset_delta + 1
        if must_roll(
            segment,
            config,
            self.topic_partition,
            size=size,
            last_offset=last,
            timestamp=headers[-1].max_timestamp,
            now_ms=now_ms,
        ):
            # The end of one segment is the base of the next, also before a gap: so recovery
            # notices a lost end. Only an offset too far away makes an exception.
            far = last - self.log_end_offset > RELATIVE_OFFSET_MAX
            segment = self._roll(base if far else self.log_end_offset, now_ms)
        at = 0
        for header in headers:
            batch_size = header.batch_length + LOG_OVERHEAD
            if leader_epoch is None:
                base = header.base_offset
            last = base + header.last_offset_delta
            try:
                segment.add(
                    base, last, header.max_timestamp, batch_size, config.index_interval_bytes
                )
            except OSError as error:  # of the index; earlier batches of these may be queued
                failed = self._fail_for_good(error) if at else self.log_dir.fail(error)
                raise failed from error
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    self._end_transaction(header, _part(records, at, batch_size), base)
                else:
                    self.producers.add(header, base)
            # When nothing can go wrong any more: the index is a file, too.
            if isinstance(records, ByteRange):
                assert leader_epoch is not None
                part = records.part(at, batch_size)
                queue_stamped(self._pending, part, base, leader_epoch)
            base = last + 1
            at += batch_size
        if not isinstance(records, ByteRange):
            self._pending.append(records)
        self.room.queued += size
        self.log_end_offset = self.producers.end_offset = base
        self.changed = True

    def _end_transaction(self, header: BatchHeader, batch: Buffer, offset: Offset) -> None:
        marker = parse_marker(batch)
        if marker is None:
            return
        completed = self.producers.end_transaction(header, marker, offset)
        if completed is not None and completed.aborted:
            self._aborted.append(AbortedTxn.of(completed))

    def write_pending(self) -> None:
        """Hand everything queued to the kernel: one writev. LogDirError if the disk fails.

        Without a descriptor for the file (`LogDirError.offline` is False) all stays queued, to
        be written by a later call.
        """
        pending = self._pending
        if not pending:
            return
        segment = self.segments[-1]
        size = segment.size - segment.written
        try:
            self.log_dir.check()
            aborted = self._aborted
            while aborted:  # first, so that a second try of the write finds them written
                segment.txn_index.append(aborted[0])
                del aborted[0]
            segment.write(pending)
        except (OSError, KafkaError) as error:
            failed = self.log_dir.fail(error) if isinstance(error, OSError) else error
            if not isinstance(failed, LogDirError) or failed.offline:
                # Some of it may be in the file: nobody may append behind it or believe in it.
                self.log_end_offset = self.written_offset
                pending.clear()
                self._aborted.clear()
            raise failed from error
        pending.clear()
        self.room.queued -= size
        self.written_offset = self.log_end_offset

    def forget_pending(self) -> None:
        """The log is deleted: what is queued is not written any more."""
        segment = self.segments[-1]
        self.room.queued -= segment.size - segment.written
        self._pending.clear()
        self._aborted.clear()

    def _fail_for_good(self, error: OSError) -> LogDirError:
        """After an error that left memory and files in disagreement, whatever its reason was."""
        failed = self.log_dir.fail(error)
        if failed.offline:
            return failed
        return self.log_dir.fail(OSError(errno.EIO, f"{self.topic_partition}: {error}", self.dir))

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self.segments[-1].size > 0:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """Write what is queued, seal the active segment, go on in a new one."""
        self.write_pending()
        old = self.segments[-1]
        kept = self.segments
        sealed = False
        try:
            if old.size == 0:  # an offset too far from its base, and nothing in it
                kept = kept[:-1]
                old.remove()
            else:
                old.seal()
                sealed = True
                self.take_snapshot()
            if len(kept) > 1:
                kept[-2].recent = None
            new = LogSegment(self.log_dir.files, self.dir, base_offset, created_ms=now_ms)
            new.create()
        except OSError as error:
            failed = self.log_dir.fail(error)
            if not failed.offline:
                # No descriptor. The segment goes on as the active one, the next append tries
                # again; unless it was empty and is removed.
                if not sealed and kept is not self.segments:
                    failed = self._fail_for_good(error)
                old.sealed = False
            raise failed from error
        with publishing:
            # The indexes of the old segment are not synced yet: recovery must look at it.
            self.recovery_point = min(self.recovery_point, base_offset - 1)
            self.segments = [*kept, new]
            self.dir_synced = False
        return new

    def take_snapshot(self) -> None:
        """Write the producer state as of the log end, unless there is a snapshot of it."""
        state = self.producers
        offset = self.log_end_offset
        if offset > state.snapshot_offset:
            data = encode_snapshot(state.entries)
            self.log_dir.disk.write(snapshot_path(self.dir, offset), data, sync=False)
            state.snapshot_offset = offset

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, upper_bound: Offset, *, min_one_batch: bool = True
    ) -> tuple[FileRange | None, Offset]:
        """Up to `max_bytes` of batches from the one with `offset` on, below `upper_bound`.

        Gives the range and the base offset of its first batch; (None, offset) if there is
        nothing to read. With `min_one_batch` the first batch comes whole, however large. The
        last batch may be cut by `max_bytes`, as Kafka does; clients expect that.
        """
        if self.log_dir.failure is not None:
            self.log_dir.check()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: offset {offset} is not in "
                f"[{self.log_start_offset}, {self.log_end_offset}]",
            )
        if upper_bound > self.written_offset:
            upper_bound = self.written_offset
        if offset >= upper_bound:
            return None, offset
        try:
            return find_range(
                self.segments, self.written_offset, offset, max_bytes, upper_bound, min_one_batch
            )
        except OSError as error:
            raise self.log_dir.fail(error) from error

    @property
    def last_stable_offset(self) -> Offset:
        """Readers of committed transactions see nothing at or past it."""
        producers = self.producers
        if not producers.ongoing and not producers.unreplicated:
            return self.high_watermark
        producers.forget_replicated(self.high_watermark)
        first = producers.first_unstable_offset
        if first is None:
            return self.high_watermark
        return min(max(first, self.log_start_offset), self.high_watermark)

    def aborted_transactions(
        self, from_offset: Offset, to_offset: Offset
    ) -> list[AbortedTransaction]:
        """Those with records in [from, to): a reader of committed ones must skip their records."""
        with self._using_files():
            at = segment_index(self.segments, from_offset)
            return find_aborted(self.segments[at:], from_offset, to_offset)

    def aborted_in(
        self, records: FileRange, first_offset: Offset, from_offset: Offset, to_offset: Offset
    ) -> list[AbortedTransaction]:
        """The same for what `read` found, with its first offset; looks little further than it."""
        with self._using_files():
            segments = self.segments[segment_index(self.segments, first_offset) :]
            end = segments[0].offset_bound(records.position + records.length)
            if end is None and len(segments) > 1:
                end = segments[1].base_offset
            bound = to_offset if end is None else min(end, to_offset)
            return find_aborted(segments, from_offset, bound)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is at least as young, and its timestamp; None if none is."""
        with self._using_files():
            found = find_by_timestamp(
                self.segments, timestamp, self.log_start_offset, self.written_offset
            )
        return self._timestamp_offset(found)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first of the youngest records; None if the log is empty."""
        with self._using_files():
            found = find_max_timestamp(self.segments, self.log_start_offset, self.written_offset)
        return self._timestamp_offset(found)

    @staticmethod
    def _timestamp_offset(found: tuple[Record, BatchHeader] | None) -> TimestampOffset | None:
        if found is None:
            return None
        record, header = found
        return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)

    def begin_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """This broker leads from now on: the epoch is known before its first record."""
        self.epochs.assign(epoch, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch` and where it ends; (-1, -1) if unknown (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Trimming and replacing

    def end_offsets(self) -> list[Offset]:
        """Where each segment ends: the next one's base offset, or the log end."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply `retention.ms`, `retention.bytes` and the log start; the number that went."""
        with self._using_files():
            return delete_old_segments(self, now_ms)

    def advance_log_start_offset(self, offset: Offset) -> None:
        """Records before it are deleted (DeleteRecords); their segments go with retention."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: cannot delete up to {offset}, "
                f"the high watermark is {self.high_watermark}",
            )
        move_log_start(self, offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drop all batches that reach to this offset or past it (a follower's step back)."""
        self.write_pending()
        if offset >= self.log_end_offset:
            # A leader that wrote nothing began an epoch here, and another one followed.
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        with self._using_files(changing=True):
            truncate(self, offset)
            if self.log_end_offset < self.log_start_offset:
                truncate_fully(self, self.log_start_offset, 0)
        self._after_truncation()

    def truncate_fully_and_start_at(self, offset: Offset, now_ms: int = 0) -> None:
        """Drop everything and go on, empty, at this offset (a follower too far behind)."""
        self.write_pending()
        with self._using_files(changing=True):
            truncate_fully(self, offset, now_ms)
        self._after_truncation()

    def _after_truncation(self) -> None:
        self.changed = True
        with publishing:
            self.truncations += 1
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.dir_synced = False
        if self.checkpoint_max > self.recovery_point:
            # New bytes will follow where old, synced ones were: a crash must not trust them.
            self.log_dir.checkpoint_recovery_points()()
            self.log_dir.checkpoint_log_starts()()
        if self.cleaned_offset > self.log_end_offset:
            # What will be written there is dirty.
            self.cleaned_offset = self.log_end_offset
            self.log_dir.checkpoint_cleaner_offsets()()

    def new_cleaned_segment(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """An empty segment with suffix `.cleaned`; its owner fills, seals and syncs it."""
        files = self.log_dir.files
        segment = LogSegment(files, self.dir, base_offset, created_ms=now_ms, suffix=CLEANED)
        segment.remove()
        segment.create()
        return segment

    def replace_segments(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], now_ms: int
    ) -> bool:
        """Swap in what the cleaner made; False if retention took `old` away meanwhile.

        Only renames files; the cleaner's thread then makes that durable (`sync_dir`).
        """
        with self._using_files(changing=True):
            return replace(self, old, new, now_ms)

    @contextmanager
    def _using_files(self, *, changing: bool = False) -> Iterator[None]:
        """`changing`: what is done in several steps may have stopped between two of them."""
        self.log_dir.check()
        try:
            yield
        except OSError as error:
            failed = self._fail_for_good(error) if changing else self.log_dir.fail(error)
            raise failed from error

    # Flushing

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush."""
        unflushed = self.written_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or now_ms - self.flushed_ms >= self.config.flush_ms
        )

    def flush(self, now_ms: int | None = None) -> None:
        """fsync what was written so far and move the recovery point. Safe in a worker thread."""
        flush(self, now_ms)

    def validate(self) -> None:
        """Check the invariants; tests call it after each step."""
        assert self.log_start_offset <= self.written_offset <= self.log_end_offset
        assert self.high_watermark <= self.written_offset
        assert self.recovery_point <= self.written_offset
        for segment, end_offset in zip(self.segments, self.end_offsets(), strict=True):
            active = segment is self.segments[-1]
            assert segment.base_offset <= end_offset
            assert segment.sealed != active
            assert segment.written == segment.size or active
            assert segment.synced or segment.size == 0 or self.recovery_point < end_offset or active
        queued = sum(len(buffer) for buffer in self._pending)
        assert self.active.size - self.active.written == queued

    def close(self, *, sync: bool = True) -> None:
        """Write and sync everything, so that the next start need not recover.

        With `sync=False` the caller syncs the whole file system and then calls `mark_synced`.
        """
        self.write_pending()
        if self.changed:
            with self._using_files():
                finish(self, sync=sync)

    def mark_synced(self) -> None:
        self.recovery_point = self.written_offset
        for segment in self.segments:
            segment.synced = True


def _part(records: ByteRange | Buffer, at: int, size: int) -> Buffer:
    if isinstance(records, ByteRange):
        return records.part(at, size).from_byte(0)
    return memoryview(records)[at : at + size]
