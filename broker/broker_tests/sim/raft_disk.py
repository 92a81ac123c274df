"""The disk of a simulated quorum node: a log, snapshots and the vote file.

A write reaches the page cache; only a flush makes it durable. A crash keeps everything durable
and a random part of the rest: batches survive as a prefix (a torn batch is dropped by the log's
recovery), and a truncation that was never flushed may come undone.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from random import Random
from uuid import UUID

from odradek_broker.raft.values import (
    EMPTY_LOG,
    Batch,
    OffsetAndEpoch,
    ReplicaKey,
    SnapshotInfo,
)
from odradek_broker.raft.vote_state import VoteState
from odradek_broker.raft.voters import VotersAt, VoterSet
from odradek_protocol.ids import Offset

BATCH_OVERHEAD_BYTES = 61
UNDO_CHANCE = 0.3


@dataclass(frozen=True)
class StoredSnapshot:
    info: SnapshotInfo
    voters: VotersAt
    data: bytes


class MemoryRaftLog:
    """A `RaftLog` in memory."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.stored_snapshots: list[StoredSnapshot] = []
        self.start_offset: Offset = 0
        self.end_offset: Offset = 0
        self.durable_count = 0  # this many batches survive any crash
        self._undo: list[Batch] = []  # durable once, truncated since, the truncation not flushed

    def snapshots(self) -> tuple[tuple[SnapshotInfo, VotersAt], ...]:
        return tuple((stored.info, stored.voters) for stored in self.stored_snapshots)

    def read(self, from_offset: Offset, max_bytes: int) -> tuple[Batch, ...]:
        found: list[Batch] = []
        size = 0
        for batch in self.batches[self._index(from_offset) :]:
            size += BATCH_OVERHEAD_BYTES + len(batch.data)
            if found and size > max_bytes:
                break
            found.append(batch)
        return tuple(found)

    def append(self, batches: tuple[Batch, ...]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset
            self.batches.append(batch)
            self.end_offset = batch.end_offset

    def truncate_to(self, end_offset: Offset) -> None:
        index = self._index(end_offset)
        if index < self.durable_count:
            self._undo = self.batches[index : self.durable_count] + self._undo
            self.durable_count = index
        del self.batches[index:]
        self._set_end()

    def flush(self, end_offset: Offset) -> None:
        self.durable_count = max(self.durable_count, self._index(end_offset))
        self._undo = []

    def trim_to(self, start_offset: Offset) -> None:
        index = self._index(start_offset)
        del self.batches[:index]
        self.durable_count = max(0, self.durable_count - index)
        self.start_offset = start_offset
        self.stored_snapshots = [
            stored for stored in self.stored_snapshots if stored.info.id.offset >= start_offset
        ]
        self._set_end()

    def load_snapshot(self, snapshot: StoredSnapshot) -> None:
        self.batches, self._undo, self.durable_count = [], [], 0
        self.stored_snapshots = [snapshot]
        self.start_offset = self.end_offset = snapshot.info.id.offset

    def crash(self, rng: Random) -> None:
        if self._undo and rng.random() < UNDO_CHANCE:
            self.batches[self.durable_count :] = self._undo
        else:
            kept = rng.randint(self.durable_count, len(self.batches))
            del self.batches[kept:]
        self._undo, self.durable_count = [], len(self.batches)
        self._set_end()
        newest = self.stored_snapshots[-1] if self.stored_snapshots else None
        if newest is not None and self.end_offset < newest.info.id.offset:
            self.load_snapshot(newest)  # as the driver does when it opens such a log

    @property
    def end(self) -> OffsetAndEpoch:
        if self.batches:
            return OffsetAndEpoch(self.end_offset, self.batches[-1].epoch)
        for stored in self.stored_snapshots:
            if stored.info.id.offset == self.end_offset:
                return stored.info.id
        return EMPTY_LOG

    def batch_at(self, base_offset: Offset) -> Batch | None:
        index = self._index(base_offset)
        if index < len(self.batches) and self.batches[index].base_offset == base_offset:
            return self.batches[index]
        return None

    def durably_has(self, position: OffsetAndEpoch) -> bool:
        """Whether a crash right now would leave everything up to `position`."""
        for stored in self.stored_snapshots:
            if position.offset <= stored.info.id.offset:
                return True  # a snapshot holds only what is committed
        index = self._index(position.offset) - 1
        return (
            0 <= index < self.durable_count
            and self.batches[index].end_offset == position.offset
            and self.batches[index].epoch == position.epoch
        )

    def _index(self, offset: Offset) -> int:
        """The index of the batch that begins at `offset`; the length if that is the end."""
        return bisect_left(self.batches, offset, key=lambda batch: batch.base_offset)

    def _set_end(self) -> None:
        self.end_offset = self.batches[-1].end_offset if self.batches else self.start_offset


class RaftDisk:
    def __init__(self, node_id: int, directory_id: UUID, formatted_with: VoterSet) -> None:
        self.key = ReplicaKey(node_id, directory_id)
        self.formatted_with = formatted_with
        self.log = MemoryRaftLog()
        self.vote: VoteState | None = None
