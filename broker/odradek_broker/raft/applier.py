"""What is committed becomes the metadata of this broker, in the order of the log.

Records that this node appended as leader are at hand as objects until they are committed; all
others are read from the log. Whoever waits for an append hears of it after its records are in
the image and the subscribers have been told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.record_codec import decode_record
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.model.ids import LeaderEpoch, Offset
from odradek_broker.raft.log_files import LogFiles
from odradek_broker.raft.snapshot_files import read_metadata_records
from odradek_broker.raft.values import SnapshotInfo
from odradek_broker.wire.record_batch import read_header
from odradek_broker.wire.records import read_records

READ_BYTES = 1 << 20  # of the log at a time


class PendingAppend(NamedTuple):
    base_offset: Offset
    epoch: LeaderEpoch
    records: Sequence[MetadataRecord]
    size_bytes: int
    committed: asyncio.Future[None]

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

    def expect(self, pending: PendingAppend) -> None:
        self._pending.append(pending)

    def forget_pending(self, error: Exception) -> None:
        """Nobody knows what becomes of them; if they are committed, the log has them."""
        pending, self._pending = self._pending, deque()
        for append in pending:
            if not append.committed.done():
                append.committed.set_exception(error)
                append.committed.exception()  # nobody has to listen

    def apply_to(self, high_watermark: Offset) -> None:
        while self.offset < high_watermark:
            pending = self._pending[0] if self._pending else None
            if pending is not None and pending.base_offset == self.offset:
                self._apply_own(self._pending.popleft())
            else:
                end = min(high_watermark, pending.base_offset if pending else high_watermark)
                self._apply_from_log(end)

    def load(self, snapshot: SnapshotInfo) -> None:
        """The image is what the snapshot says, whatever it was before."""
        records = map(decode_record, read_metadata_records(self._files.read_snapshot(snapshot.id)))
        self.offset = snapshot.id.offset
        self.bytes_since_snapshot = 0
        self._publisher.load(records, snapshot.id.offset - 1, snapshot.id.epoch)

    def _apply_own(self, append: PendingAppend) -> None:
        self.offset = append.end_offset
        self.bytes_since_snapshot += append.size_bytes
        self._publisher.replay(append.records, append.end_offset - 1, append.epoch)
        if not append.committed.done():
            append.committed.set_result(None)

    def _apply_from_log(self, end: Offset) -> None:
        """Batches below `end`, as many as are read at a time and are of one epoch."""
        records: list[MetadataRecord] = []
        epoch = None
        for batch in self._files.read(self.offset, READ_BYTES):
            if batch.base_offset >= end or (epoch is not None and batch.epoch != epoch):
                break
            epoch = batch.epoch
            self.offset = batch.end_offset
            self.bytes_since_snapshot += len(batch.data)
            if not read_header(batch.data).is_control:
                values = (record.value or b"" for record in read_records(batch.data))
                records += map(decode_record, values)
        assert epoch is not None, f"nothing at {self.offset} below {end}"
        if records:
            self._publisher.replay(records, self.offset - 1, epoch)
