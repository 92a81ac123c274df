"""Applies committed records to the metadata of this broker, in the order of the log.

Records that this node appended as leader are kept as objects until they are committed, together
with their delta if the controller has computed it (`PendingAppend.delta`). All others are read
from the log. The future of an append is done after its records are in the image and the
subscribers were notified.

Ten thousand records take a quarter of a second to decode and replay, so all of this is done in
steps (`runtime/slices.py`); the image and `offset` change once per batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.record_codec import decode_record
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.raft.log_files import LogFiles
from odradek_broker.raft.snapshot_files import read_metadata_records
from odradek_broker.raft.values import SnapshotInfo
from odradek_protocol.ids import LeaderEpoch, Offset
from odradek_protocol.records.record_batch import read_header
from odradek_protocol.records.records import read_records

READ_BYTES = 1 << 20  # read from the log at a time
RECORDS_PER_STEP = 50  # some 1.5 ms


class PendingAppend(NamedTuple):
    base_offset: Offset
    epoch: LeaderEpoch
    records: Sequence[MetadataRecord]
    size_bytes: int
    committed: asyncio.Future[None]
    delta: MetadataDelta | None = None  # finished; used if it starts from the publisher's image

    @property
    def end_offset(self) -> Offset:
        return self.base_offset + len(self.records)


class Applier:
    """Invariant: everything below `offset` is in the publisher's image, and nothing else."""

    def __init__(self, files: LogFiles, publisher: MetadataPublisher) -> None:
        self.offset: Offset = 0
        self.bytes_since_snapshot = 0
        self._files = files
        self._publisher = publisher
        self._pending: deque[PendingAppend] = deque()
        self._loads = 0  # how often a snapshot replaced the log

    def expect(self, pending: PendingAppend) -> None:
        self._pending.append(pending)

    def forget_pending(self, error: Exception) -> None:
        """Their outcome is unknown. If they are committed, they will be read from the log."""
        pending, self._pending = self._pending, deque()
        for append in pending:
            if not append.committed.done():
                append.committed.set_exception(error)
                append.committed.exception()  # retrieved: no caller has to wait for it

    def apply_to(self, high_watermark: Offset) -> Iterator[None]:
        """Applies everything below `high_watermark`. Ends early if a snapshot replaces the log."""
        loads = self._loads
        while self.offset < high_watermark and self._loads == loads:
            pending = self._pending[0] if self._pending else None
            if pending is not None and pending.base_offset == self.offset:
                self._apply_own(self._pending.popleft())
                yield None
            else:
                end = min(high_watermark, pending.base_offset if pending else high_watermark)
                yield from self._apply_from_log(end, loads)

    def replaced(self) -> None:
        """A snapshot replaced the log: stop applying the old log; `load` follows."""
        self._loads += 1

    def load(self, snapshot: SnapshotInfo) -> Iterator[None]:
        """Replaces the image by that of the snapshot."""
        data = self._files.read_snapshot(snapshot.id)
        delta = MetadataDelta(EMPTY_IMAGE)
        yield from _replay(delta, read_metadata_records(data))
        after = delta.finish(snapshot.id.offset - 1).after
        self.offset = snapshot.id.offset
        self.bytes_since_snapshot = 0
        publisher = self._publisher
        publisher.publish(MetadataDelta.between(publisher.image, after), snapshot.id.epoch)

    def _apply_own(self, append: PendingAppend) -> None:
        self.offset = append.end_offset
        self.bytes_since_snapshot += append.size_bytes
        publisher, delta = self._publisher, append.delta
        if delta is not None and delta.before is publisher.image:
            publisher.publish(delta, append.epoch)
        else:
            publisher.replay(append.records, append.end_offset - 1, append.epoch)
        if not append.committed.done():
            append.committed.set_result(None)

    def _apply_from_log(self, end: Offset, loads: int) -> Iterator[None]:
        """Applies batches below `end`: at most one read, and of one epoch."""
        delta = MetadataDelta(self._publisher.image)
        epoch, offset, size, changes = None, self.offset, 0, False
        for batch in self._files.read(self.offset, READ_BYTES):
            if batch.base_offset >= end or (epoch is not None and batch.epoch != epoch):
                break
            epoch = batch.epoch
            offset = batch.end_offset
            size += len(batch.data)
            if not read_header(batch.data).is_control:
                changes = True
                values = (record.value or b"" for record in read_records(batch.data))
                yield from _replay(delta, values)
        if self._loads != loads:
            return
        assert epoch is not None, f"nothing at {self.offset} below {end}"
        self.offset = offset
        self.bytes_since_snapshot += size
        if changes:
            self._publisher.publish(delta.finish(offset - 1), epoch)
        yield None


def _replay(delta: MetadataDelta, values: Iterable[bytes]) -> Iterator[None]:
    for count, value in enumerate(values, 1):
        delta.replay(decode_record(value))
        if count % RECORDS_PER_STEP == 0:
            yield None
