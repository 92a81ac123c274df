"""The shape of the log as the quorum sees it: offsets, epochs, snapshots, voter sets; no data.

The state machine changes it in the step that returns the matching instruction, so within a step
it already has the state that the files will have when the instruction has been carried out.

Example: epochs [(1, 0), (4, 50), (5, 52)] and end 60 say that records 0–49 are of epoch 1,
50–51 of epoch 4 and 52–59 of epoch 5; the end is the position (60, 5), the end of epoch 1 (and
of 2 and 3, which wrote nothing here) is (50, 1).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from odradek_broker.raft.errors import RaftError
from odradek_broker.raft.log_port import RaftLog
from odradek_broker.raft.values import (
    EMPTY_LOG,
    Batch,
    OffsetAndEpoch,
    SnapshotInfo,
    Voters,
)
from odradek_broker.raft.voters import VoterHistory, VotersAt, VoterSet
from odradek_protocol.ids import LeaderEpoch, Offset

LOAD_BYTES_MAX = 1 << 20  # read the log at start in pieces of this size


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class LogView:
    __slots__ = (
        "_epochs",
        "end_offset",
        "flushed_offset",
        "generation",
        "last_epoch",
        "snapshot",
        "start",
        "voters",
    )

    def __init__(self, voters: VoterHistory) -> None:
        # Where the log begins: (0, 0), or the id of the snapshot that covers everything before.
        self.start: OffsetAndEpoch = EMPTY_LOG
        # The newest snapshot. Invariant: not below start.offset; None only while that is 0.
        self.snapshot: SnapshotInfo | None = None
        self.end_offset: Offset = 0
        # Epoch of the last record, of the snapshot if there is none, 0 in a new log.
        self.last_epoch: LeaderEpoch = 0
        # Everything below is durable. Invariant: start.offset <= flushed_offset <= end_offset.
        self.flushed_offset: Offset = 0
        # Counts truncations: a flush that began before one does not cover records appended after.
        self.generation = 0
        self.voters = voters
        # Invariant: both columns strictly ascend; all offsets are at or above start.offset.
        self._epochs: list[EpochStart] = []

    @classmethod
    def load(cls, log: RaftLog, formatted_with: VoterSet) -> LogView:
        """The view of a log on disk, all of which must be durable already."""
        view = cls(VoterHistory.formatted_with(formatted_with))
        for snapshot, voters in log.snapshots():
            if snapshot.id.offset == log.start_offset:
                view.reset_to(snapshot, voters)
            view.snapshot = snapshot
        if view.start.offset != log.start_offset:
            raise RaftError(f"no snapshot ends where the log starts, at {log.start_offset}")
        while view.end_offset < log.end_offset:
            for batch in log.read(view.end_offset, LOAD_BYTES_MAX):
                view.append(batch)
        view.flushed_offset = view.end_offset
        return view

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def newest_voters(self) -> VoterSet:
        return self.voters.newest.voters

    def append(self, batch: Batch) -> None:
        assert batch.base_offset == self.end_offset
        assert batch.epoch >= self.last_epoch
        if not self._epochs or batch.epoch > self.last_epoch:
            self._epochs.append(EpochStart(batch.epoch, batch.base_offset))
        for delta, record in enumerate(batch.control):
            if isinstance(record, Voters):
                self.voters.add(batch.base_offset + delta, record.voters)
        self.end_offset = batch.end_offset
        self.last_epoch = batch.epoch

    def truncate_to(self, end_offset: Offset) -> None:
        assert self.start.offset <= end_offset <= self.end_offset
        while self._epochs and self._epochs[-1].start_offset >= end_offset:
            self._epochs.pop()
        self.voters.truncate_to(end_offset)
        self.end_offset = end_offset
        self.last_epoch = self._epochs[-1].epoch if self._epochs else self.start.epoch
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.generation += 1

    def trim_to_snapshot(self) -> None:
        """The log begins where the newest snapshot ends."""
        assert self.snapshot is not None
        snapshot_id = self.snapshot.id
        while len(self._epochs) > 1 and self._epochs[1].start_offset <= snapshot_id.offset:
            del self._epochs[0]
        if self.end_offset == snapshot_id.offset:
            self._epochs.clear()
        elif self._epochs[0].start_offset < snapshot_id.offset:
            self._epochs[0] = EpochStart(self._epochs[0].epoch, snapshot_id.offset)
        self.voters.trim_to(snapshot_id.offset)
        self.start = snapshot_id
        # The snapshot is durable, and so are the records that it covers.
        self.flushed_offset = max(self.flushed_offset, snapshot_id.offset)

    def reset_to(self, snapshot: SnapshotInfo, voters: VotersAt) -> None:
        """The log was replaced by a snapshot and is empty."""
        self.start, self.snapshot = snapshot.id, snapshot
        self.end_offset = self.flushed_offset = snapshot.id.offset
        self.last_epoch = snapshot.id.epoch
        self.generation += 1
        self.voters = VoterHistory(voters)
        self._epochs.clear()

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Epoch of the record before `offset`; the log must reach from there."""
        if offset <= self.start.offset:
            return self.start.epoch
        index = bisect_right(self._epochs, offset - 1, key=lambda entry: entry.start_offset)
        return self._epochs[index - 1].epoch

    def contains(self, position: OffsetAndEpoch) -> bool:
        """Whether this log and any log with that position are equal up to there."""
        return (
            self.start.offset <= position.offset <= self.end_offset
            and self.epoch_before(position.offset) == position.epoch
        )

    def end_of_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """The end of the newest epoch here that is not above `epoch`, but not before the start."""
        if epoch >= self.last_epoch:
            return self.end
        index = bisect_right(self._epochs, epoch, key=lambda entry: entry.epoch)
        if index == 0:
            return self.start
        return OffsetAndEpoch(self._epochs[index].start_offset, self._epochs[index - 1].epoch)

    def validate(self) -> None:
        """Checks the invariants above (tests call it after each step)."""
        assert 0 <= self.start.offset <= self.flushed_offset <= self.end_offset
        assert (self.snapshot is None) <= (self.start.offset == 0)
        if self.snapshot is not None:
            assert self.start.offset <= self.snapshot.id.offset <= self.end_offset
        for older, newer in zip(self._epochs, self._epochs[1:], strict=False):
            assert older.epoch < newer.epoch
            assert older.start_offset < newer.start_offset
        if self._epochs:
            assert self.start.offset <= self._epochs[0].start_offset
            assert self._epochs[-1].start_offset < self.end_offset
            assert self._epochs[-1].epoch == self.last_epoch
        else:
            assert self.end == self.start
        offsets = [entry.offset for entry in self.voters.entries()]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] < self.end_offset
