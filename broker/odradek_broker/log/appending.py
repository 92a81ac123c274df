"""Append batches to a log: check them, assign offsets, queue them, write them with one writev.

Used by `Log`, in the event loop's thread. An append only queues; `write_pending` writes everything
that a loop pass has queued. Example, with one segment of 1,000 bytes: two appends of 100 bytes each
give `segment.size=1200 segment.written=1000` and two pending buffers; the write makes both 1,200.
"""

from typing import Final

from odradek_broker.log.control import build_marker, parse_marker
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.flushing import Flusher
from odradek_broker.log.producer_replay import snapshot_path
from odradek_broker.log.producer_snapshot import encode_snapshot
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.log.rolling import must_roll
from odradek_broker.log.segment import RELATIVE_OFFSET_MAX, LogSegment
from odradek_broker.log.state import LogState
from odradek_broker.log.txn_index import AbortedTxn
from odradek_broker.log.types import AppendInfo
from odradek_broker.log.validation import validate_for_append, validate_for_replica
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.byte_range import ByteRange, whole
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId
from odradek_protocol.records.record_batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    queue_stamped,
)

NO_TIMESTAMP: Final = -1


class Appender:
    """Invariant: only the active segment has queued bytes, and they are those of `_pending`."""

    __slots__ = ("_aborted", "_flusher", "_pending", "_state")

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._pending: list[Buffer] = []
        # Aborted transactions whose markers are queued: they go to the transaction index when
        # the markers are written.
        self._aborted: list[AbortedTxn] = []

    def append_as_leader(
        self,
        records: ByteRange | Buffer,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        from_client: bool,
    ) -> AppendInfo:
        """See `Log.append_as_leader`."""
        state = self._state
        if state.log_dir.failure is not None:
            state.log_dir.check()
        if not isinstance(records, ByteRange):
            records = whole(records)
        validated = validate_for_append(records, state.config, now_ms, from_client=from_client)
        headers = validated.headers
        for header in headers:
            if header.producer_id >= 0 and not header.attributes & CONTROL_BIT:
                try:
                    original = state.producers.check(header, check_sequence=from_client)
                except KafkaError as error:
                    if error.code == ErrorCode.out_of_order_sequence_number and state.room.low:
                        # Pipelined behind a batch that was refused for lack of space. It gets
                        # the same error: with this one the producer would take a new epoch and
                        # send again what is already written.
                        state.room.admit(len(records), from_client)
                    raise
                if original is not None:
                    return AppendInfo(
                        original.first_offset, original.last_offset, original.timestamp, True
                    )
        state.room.admit(len(records), from_client)
        first_offset = state.log_end_offset
        if leader_epoch > state.epochs.latest:
            state.epochs.assign(leader_epoch, first_offset)
        self._append(validated.records, headers, now_ms, leader_epoch)
        last_offset = state.log_end_offset - 1
        return AppendInfo(first_offset, last_offset, validated.log_append_time_ms, False)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """See `Log.append_as_follower`."""
        state = self._state
        if state.log_dir.failure is not None:
            state.log_dir.check()
        headers = validate_for_replica(records)
        if not headers:
            return AppendInfo(state.log_end_offset, state.log_end_offset - 1, NO_TIMESTAMP, False)
        if headers[0].base_offset < state.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{state.topic_partition}: the leader sent offset {headers[0].base_offset}, "
                f"expected {state.log_end_offset} or more",
            )
        state.room.admit(len(records), False)
        for header in headers:
            if header.partition_leader_epoch > state.epochs.latest:
                state.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._append(records, headers, NO_TIMESTAMP, None)
        return AppendInfo(headers[0].base_offset, headers[-1].last_offset, NO_TIMESTAMP, False)

    def append_control(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        marker: EndTxnMarker,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        transaction_version: int,
    ) -> AppendInfo:
        """See `Log.append_control`."""
        state = self._state
        written = state.producers.check_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, transaction_version
        )
        if written:
            last = state.log_end_offset - 1
            return AppendInfo(last, last, NO_TIMESTAMP, True)
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        return self.append_as_leader(batch, leader_epoch, now_ms, False)

    def _append(
        self,
        records: ByteRange | Buffer,
        headers: list[BatchHeader],
        now_ms: int,
        leader_epoch: LeaderEpoch | None,
    ) -> None:
        """Queue batches; with a leader epoch they are stamped with it and with their offsets."""
        state = self._state
        config = state.config
        size = len(records)
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size} bytes do not fit into segment.bytes={config.segment_bytes}",
            )
        segment = state.segments[-1]
        if leader_epoch is None:
            base, last = headers[0].base_offset, headers[-1].last_offset
        else:
            base = last = state.log_end_offset
            for header in headers:
                last += header.last_offset_delta + 1
        if must_roll(
            segment,
            config,
            state.topic_partition,
            size=size,
            last_offset=last,
            timestamp=headers[-1].max_timestamp,
            now_ms=now_ms,
        ):
            # One segment's end is the next one's base, also before a gap: that is how recovery
            # notices a lost end. The exception is an offset too far away for an index.
            far = last - state.log_end_offset > RELATIVE_OFFSET_MAX
            segment = self._roll(base if far else state.log_end_offset, now_ms)
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
            except OSError as error:  # of the index; earlier batches of this append are queued
                failed = state.fail_for_good(error) if at else state.log_dir.fail(error)
                raise failed from error
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    self._end_transaction(header, _part(records, at, batch_size), base)
                else:
                    state.producers.add(header, base)
            # Last, because everything before it may fail: the index is a file too.
            if isinstance(records, ByteRange):
                assert leader_epoch is not None
                part = records.part(at, batch_size)
                queue_stamped(self._pending, part, base, leader_epoch)
            base = last + 1
            at += batch_size
        if not isinstance(records, ByteRange):
            self._pending.append(records)
        state.room.queued += size
        state.log_end_offset = state.producers.end_offset = base
        state.changed = True

    def _end_transaction(self, header: BatchHeader, batch: Buffer, offset: Offset) -> None:
        marker = parse_marker(batch)
        if marker is None:
            return
        completed = self._state.producers.end_transaction(header, marker, offset)
        if completed is not None and completed.aborted:
            self._aborted.append(AbortedTxn.of(completed))

    def write_pending(self) -> None:
        """See `Log.write_pending`."""
        pending = self._pending
        if not pending:
            return
        state = self._state
        segment = state.segments[-1]
        size = segment.size - segment.written
        try:
            state.log_dir.check()
            aborted = self._aborted
            while aborted:  # first, and one by one: a second attempt must not repeat them
                segment.txn_index.append(aborted[0])
                del aborted[0]
            segment.write(pending)
        except (OSError, KafkaError) as error:
            failed = state.log_dir.fail(error) if isinstance(error, OSError) else error
            if not isinstance(failed, LogDirError) or failed.offline:
                # Part of it may be in the file: nothing may be appended after it.
                state.log_end_offset = state.written_offset
                pending.clear()
                self._aborted.clear()
            raise failed from error
        pending.clear()
        state.room.queued -= size
        state.written_offset = state.log_end_offset

    def forget_pending(self) -> None:
        """Drop queued batches: the log is being deleted."""
        segment = self._state.segments[-1]
        self._state.room.queued -= segment.size - segment.written
        self._pending.clear()
        self._aborted.clear()

    @property
    def pending_bytes(self) -> int:
        return sum(len(buffer) for buffer in self._pending)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self._state.segments[-1].size > 0:
            self._roll(self._state.log_end_offset, now_ms)

    def _roll(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """Write queued batches, seal the active segment, continue in a new one."""
        self.write_pending()
        state = self._state
        old = state.segments[-1]
        kept = state.segments
        sealed = False
        try:
            if old.size == 0:  # empty, and the next offset is too far from its base
                kept = kept[:-1]
                old.remove()
            else:
                old.seal()
                sealed = True
                self.take_snapshot()
            if len(kept) > 1:
                kept[-2].recent = None
            new = LogSegment(state.log_dir.files, state.dir, base_offset, created_ms=now_ms)
            new.create()
        except OSError as error:
            failed = state.log_dir.fail(error)
            if not failed.offline:
                # No descriptor left. The segment stays the active one and the next append tries
                # again, unless the segment was empty and its file is removed already.
                if not sealed and kept is not state.segments:
                    failed = state.fail_for_good(error)
                old.sealed = False
            raise failed from error
        self._flusher.rolled([*kept, new])
        return new

    def take_snapshot(self) -> None:
        """Write the producer state as of the log end, unless a snapshot of it exists."""
        state = self._state
        producers = state.producers
        offset = state.log_end_offset
        if offset > producers.snapshot_offset:
            data = encode_snapshot(producers.entries)
            state.log_dir.disk.write(snapshot_path(state.dir, offset), data, sync=False)
            producers.snapshot_offset = offset


def _part(records: ByteRange | Buffer, at: int, size: int) -> Buffer:
    if isinstance(records, ByteRange):
        return records.part(at, size).from_byte(0)
    return memoryview(records)[at : at + size]
