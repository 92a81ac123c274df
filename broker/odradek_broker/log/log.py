"""The log of one partition: append opaque batches, read ranges of them.

Owned by the event loop's thread; only `flush` may run in another one. An append assigns
offsets and queues the bytes; `write_pending` hands all that is queued to the kernel with one
writev. So a loop pass over many requests costs one system call per partition:

    append_as_leader  ─► offsets assigned, `log_end_offset` moves, bytes queued
    write_pending     ─► bytes in the page cache, `written_offset` moves, readers see them
    flush             ─► bytes on disk, `recovery_point` moves

log_start_offset <= recovery_point, high_watermark <= written_offset <= log_end_offset, except
that the recovery point may lie before the log start after records were deleted.

Offsets may have gaps (compaction, replication of a compacted log); a read of an offset in a
gap begins with the next batch.
"""

import threading
import zlib
from bisect import bisect_right
from uuid import UUID

from odradek_broker.log.batches import split_batches
from odradek_broker.log.file_names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT, file_name
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.producer_snapshot import encode_snapshot
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from odradek_broker.log.types import AppendInfo, FileRange
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import ZERO_UUID, LeaderEpoch, Offset, TopicPartition
from odradek_broker.model.log_config import LogConfig, TimestampType
from odradek_broker.runtime.disk import Buffer
from odradek_broker.wire.record_batch import (
    EPOCH,
    EPOCH_AT,
    OFFSET,
    BatchHeader,
)

NO_TIMESTAMP = -1
# Guards the few places where flush, in its thread, publishes what the loop's thread also sets.
_publishing = threading.Lock()


class Log:
    """Invariants (checked by `validate` in tests):
    segments ascend by base offset, the last one is active, the others are sealed
    only the active segment has queued bytes
    """

    __slots__ = (
        "_flushing",
        "_pending",
        "_pending_aborted",
        "_truncations",
        "config",
        "dir",
        "epochs",
        "high_watermark",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "segments",
        "topic_id",
        "topic_partition",
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
    ) -> None:
        self.log_dir = log_dir
        self.topic_partition = topic_partition
        self.dir = f"{log_dir.path}/{topic_partition}"
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.written_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark: Offset = log_start_offset
        self.epochs = epochs
        self.producers = producers
        self._pending: list[Buffer] = []
        self._truncations = 0
        self._flushing = threading.Lock()

    def __repr__(self) -> str:
        return f"Log({self.dir}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending

    def append_as_leader(
        self,
        records: bytearray | memoryview,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        from_client: bool = True,
    ) -> AppendInfo:
        """Validate, assign offsets, queue. `records` must not be changed until it is written."""
        if self.log_dir.failure is not None:
            self.log_dir.check()
        headers = split_batches(records)
        for header in headers:
            if header.producer_id >= 0:
                original = self.producers.check(header, check_sequence=from_client)
                if original is not None:
                    return AppendInfo(
                        original.first_offset, original.last_offset, original.timestamp, True
                    )
        first_offset = self.log_end_offset
        at = 0
        offset = first_offset
        stamped = []
        for header in headers:
            OFFSET.pack_into(records, at, offset)
            EPOCH.pack_into(records, at + EPOCH_AT, leader_epoch)
            stamped.append(header._replace(base_offset=offset))
            offset += header.last_offset_delta + 1
            at += header.size
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        self._append(records, stamped, now_ms)
        by_broker = self.config.timestamp_type is TimestampType.LOG_APPEND_TIME
        return AppendInfo(
            first_offset, offset - 1, headers[0].max_timestamp if by_broker else NO_TIMESTAMP, False
        )

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Queue batches of the leader as they are: offsets and epochs are kept, the CRC checked."""
        if self.log_dir.failure is not None:
            self.log_dir.check()
        headers = split_batches(records)
        expected = self.log_end_offset
        for header in headers:
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"{self.topic_partition}: leader sent offset {header.base_offset}, "
                    f"expected {expected} or more",
                )
            expected = header.next_offset
        for header in headers:
            if header.partition_leader_epoch > self.epochs.latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._append(records, headers, NO_TIMESTAMP)
        return AppendInfo(headers[0].base_offset, expected - 1, NO_TIMESTAMP, False)

    def _append(self, records: Buffer, headers: list[BatchHeader], now_ms: int) -> None:
        segment = self.segments[-1]
        size = len(records)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size} bytes, segments have at most {self.config.segment_bytes}",
            )
        if self._must_roll(segment, size, headers, now_ms):
            segment = self._roll(headers[0].base_offset, now_ms)
        interval = self.config.index_interval_bytes
        for header in headers:
            base = header.base_offset
            last = base + header.last_offset_delta
            segment.add(base, last, header.max_timestamp, header.size, interval)
            if header.producer_id >= 0:
                self.producers.add(header, base)
            self.log_end_offset = last + 1
        self._pending.append(records)

    def _must_roll(
        self, segment: LogSegment, size: int, headers: list[BatchHeader], now_ms: int
    ) -> bool:
        config = self.config
        if segment.size + size > config.segment_bytes:
            return segment.size > 0
        if headers[-1].last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if segment.size == 0:
            return False
        if segment.bytes_since_index > config.index_interval_bytes and segment.index_full(
            config.segment_index_bytes
        ):
            return True
        waited = segment.waited_for_roll(headers[-1].max_timestamp, now_ms)
        return waited > config.segment_ms - self._roll_jitter_ms(segment)

    def _roll_jitter_ms(self, segment: LogSegment) -> int:
        """Keeps many partitions from rolling at once; the same at each look at a segment."""
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if jitter == 0:
            return 0
        return zlib.crc32(f"{self.topic_partition}@{segment.base_offset}".encode()) % jitter

    def write_pending(self) -> None:
        """Hand everything queued to the kernel: one writev. LogDirError if the disk fails."""
        pending = self._pending
        if not pending:
            return
        self.log_dir.check()
        try:
            self.segments[-1].write(pending)
        except OSError as error:
            # Some of it may be in the file: nobody may append behind it or believe in it.
            pending.clear()
            self.log_end_offset = self.written_offset
            raise self.log_dir.fail(error) from error
        pending.clear()
        self.written_offset = self.log_end_offset

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self.segments[-1].size > 0:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: Offset, now_ms: int) -> LogSegment:
        self.write_pending()
        old = self.segments[-1]
        try:
            old.seal()
            if len(self.segments) > 1:
                self.segments[-2].recent = None
            new = LogSegment(self.log_dir.files, self.dir, base_offset, created_ms=now_ms)
            new.file()
            self.take_snapshot()
        except OSError as error:
            raise self.log_dir.fail(error) from error
        with _publishing:
            # The indexes of the old segment are not synced yet: recovery must look at it.
            self.recovery_point = min(self.recovery_point, base_offset - 1)
            self.segments.append(new)
        return new

    def take_snapshot(self) -> None:
        """Write the producer state as of the log end, unless there is a snapshot of it."""
        state = self.producers
        offset = self.log_end_offset
        if offset > state.snapshot_offset:
            path = f"{self.dir}/{file_name(offset, SNAPSHOT)}"
            self.log_dir.disk.write(path, encode_snapshot(state.entries), sync=False)
            state.snapshot_offset = offset

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, upper_bound: Offset, *, min_one_batch: bool = True
    ) -> tuple[FileRange | None, Offset]:
        """Up to `max_bytes` of whole batches from the one with `offset` on, below `upper_bound`.

        Gives the range and the base offset of its first batch; (None, offset) if there is
        nothing to read. With `min_one_batch` the first batch comes whole, however large.
        """
        if self.log_dir.failure is not None:
            self.log_dir.check()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: offset {offset} is not in "
                f"[{self.log_start_offset}, {self.log_end_offset}]",
            )
        upper_bound = min(upper_bound, self.written_offset)
        if offset >= upper_bound:
            return None, offset
        try:
            return self._read(offset, max_bytes, upper_bound, min_one_batch)
        except OSError as error:
            raise self.log_dir.fail(error) from error

    def _read(
        self, offset: Offset, max_bytes: int, upper_bound: Offset, min_one_batch: bool
    ) -> tuple[FileRange | None, Offset]:
        segments = self.segments
        at = len(segments) - 1
        if offset < segments[at].base_offset:
            at = bisect_right(segments, offset, key=_base_offset) - 1
        found = None
        while found is None:  # the offset may be in a gap at the end of a segment
            if at == len(segments):
                return None, offset
            segment = segments[at]
            found = segment.locate(offset)
            at += 1
        start = found.position
        end = segment.written
        if upper_bound < (segments[at].base_offset if at < len(segments) else self.written_offset):
            bound = segment.locate(upper_bound)
            if bound is not None:
                end = bound.position
        length = end - start
        if length > max_bytes:
            if max_bytes < found.size:
                length = found.size if min_one_batch else 0
            else:
                length = max_bytes
                if segment.recent is not None:
                    length = segment.recent.last_boundary(start, start + max_bytes) - start
        if length <= 0:
            return None, offset
        return FileRange(segment.file(), start, length), found.base_offset

    # Flushing

    def flush(self) -> None:
        """fsync what was written so far and move the recovery point. Safe in a worker thread."""
        with self._flushing:
            truncations = self._truncations
            target = self.written_offset
            unsynced = [segment for segment in self.segments if not segment.synced]
            try:
                for segment in unsynced:
                    segment.sync()
                self.save_epochs()
                self.log_dir.disk.sync_dir(self.dir)
            except OSError as error:
                raise self.log_dir.fail(error) from error
            with _publishing:
                if truncations != self._truncations:
                    return  # the loop's thread truncated meanwhile: this flush proves nothing
                last = unsynced[-1]
                if last.sealed and not last.synced:
                    target -= 1  # rolled meanwhile; see _roll
                self.recovery_point = max(self.recovery_point, target)

    def save_epochs(self) -> None:
        if self.epochs.dirty:
            self.epochs.dirty = False
            path = f"{self.dir}/{LEADER_EPOCH_CHECKPOINT}"
            self.log_dir.disk.write(path, self.epochs.encode())

    def close(self) -> None:
        """Write and sync everything, so that the next start need not recover."""
        self.write_pending()
        try:
            self.segments[-1].seal()
            self.take_snapshot()
        except OSError as error:
            raise self.log_dir.fail(error) from error
        self.flush()
        for segment in self.segments:
            segment.release_file()


def _base_offset(segment: LogSegment) -> Offset:
    return segment.base_offset
