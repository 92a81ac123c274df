"""The metadata log on disk: `log.Log` for the records, checkpoint files for the snapshots.

    files = open_metadata_log(Path("/data"), RealDisk(), settings, now_ms)
    LogView.load(files, formatted_with)        the quorum's view of it

All files are in `<metadata.log.dir>/__cluster_metadata-0`, with the file `quorum-state`. Owned by
the event loop's thread, except for methods that say that they may run in another. Raises
LogDirError or OSError when the disk fails; the node then leaves the quorum.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from crc32c import crc32c

from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.types import FileRange
from odradek_broker.model.log_config import LogConfig
from odradek_broker.raft.control_codec import build_control_batch, read_control_batch
from odradek_broker.raft.snapshot_files import (
    FORMATTED,
    PART,
    SnapshotError,
    checkpoint_name,
    encode_snapshot,
    parse_checkpoint_name,
    read_voters,
)
from odradek_broker.raft.values import (
    Batch,
    KRaftVersion,
    LeaderChange,
    OffsetAndEpoch,
    SnapshotInfo,
    Voters,
)
from odradek_broker.raft.vote_state import VoteState
from odradek_broker.raft.voters import VotersAt, VoterSet
from odradek_broker.runtime.disk import Disk, File
from odradek_broker.runtime.settings import Settings
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import METADATA_TOPIC, NO_LEADER_EPOCH, Offset, TopicPartition
from odradek_protocol.records.record_batch import CRC_FROM, HEADER_BYTES, LOG_OVERHEAD, read_header
from odradek_protocol.varint import Buffer

logger = logging.getLogger(__name__)

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
QUORUM_STATE = "quorum-state"
# Next to meta.properties: a node with this directory id is or was a voter.
VOTER_MARK = ".odradek-voter"
VOTER_MARK_TEXT = (
    b"The node with this directory id is a voter of the metadata quorum. Without its log and its\n"
    b"vote (__cluster_metadata-0) it must not start with this id; this file prevents that.\n"
)

BATCH_BYTES_MAX = 8 * 1024 * 1024  # Kafka's limit; 10,000 partitions take some 700 KB
OPEN_FILES_MAX = 16


def open_metadata_log(directory: Path, disk: Disk, settings: Settings, now_ms: int) -> LogFiles:
    """The log in `<directory>/__cluster_metadata-0`, created if it does not exist.

    It is always recovered as after a crash: its tail decides which topics exist, and it is short.
    """
    disk.make_dir(f"{directory}/{METADATA_PARTITION}")
    config = LogConfig(
        segment_bytes=settings.int("metadata.log.segment.bytes"),
        segment_ms=settings.int("metadata.log.segment.ms"),
        max_message_bytes=BATCH_BYTES_MAX,
        retention_ms=-1,  # only records that a snapshot covers are deleted
    )
    log_dir = LogDir(str(directory), disk, FileCache(disk, OPEN_FILES_MAX))
    log = load_log(log_dir, METADATA_PARTITION, config, LoadOptions(clean=False), now_ms)
    files = LogFiles(log)
    files.recover(now_ms)
    return files


class LogFiles:
    """A `RaftLog`. Invariant: the log starts at 0 or where one of the snapshots ends."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._disk = log.log_dir.disk
        self._directory = log.dir
        self._snapshots: dict[OffsetAndEpoch, tuple[SnapshotInfo, VotersAt]] = {}
        self._download: File | None = None
        self.marked_voter = False

    # -- opening ----------------------------------------------------------------------------

    def recover(self, now_ms: int) -> None:
        """Finds the snapshots; lets the log begin where the newest ends."""
        for entry in sorted(self._disk.scan(self._directory)):
            if entry.name.endswith(PART):
                self._disk.remove(f"{self._directory}/{entry.name}")
            snapshot_id = parse_checkpoint_name(entry.name)
            if snapshot_id is not None and snapshot_id != FORMATTED:
                self._remember(SnapshotInfo(snapshot_id, entry.size))
        log = self.log
        if self._snapshots:
            newest = max(self._snapshots)
            known_epoch = log.epochs.epoch_of(newest.offset - 1)
            if log.log_end_offset < newest.offset or known_epoch not in (
                NO_LEADER_EPOCH,
                newest.epoch,
            ):
                # The snapshot was about to replace the log when the process died.
                log.truncate_fully_and_start_at(newest.offset, now_ms)
            elif log.log_start_offset <= newest.offset:
                log.high_watermark = newest.offset
                self.trim_to(newest.offset, now_ms)
        if log.log_start_offset > 0 and log.log_start_offset not in (
            snapshot_id.offset for snapshot_id in self._snapshots
        ):
            raise LogDirConfigError(
                f"{self._directory}: the log begins at offset {log.log_start_offset}, but the "
                "snapshot of the records before that offset is missing"
            )

    def _remember(self, info: SnapshotInfo) -> None:
        path = self._path(info.id)
        try:
            voters = read_voters(self._disk.read(path))
        except SnapshotError as error:
            logger.error("snapshot %s is ignored: %s", path, error)
            return
        # The offset of the Voters record is unknown; it is committed, so below the snapshot's end.
        self._snapshots[info.id] = (info, VotersAt(info.id.offset - 1, voters))

    def read_vote(self) -> VoteState | None:
        """The content of `quorum-state`; LogDirConfigError if it is damaged."""
        path = f"{self._directory}/{QUORUM_STATE}"
        if not self._disk.exists(path):
            return None
        try:
            return VoteState.from_json(self._disk.read(path).decode())
        except ValueError as error:
            raise LogDirConfigError(f"{path}: {error}") from error

    def write_vote(self, vote: VoteState) -> None:
        """Durable when it returns. May run in a thread."""
        self._disk.write(f"{self._directory}/{QUORUM_STATE}", vote.to_json().encode())

    def mark_voter(self) -> None:
        """From now on `check_memory` may fail. Durable when it returns; may run in a thread."""
        path = f"{self.log.log_dir.path}/{VOTER_MARK}"
        if not self._disk.exists(path):
            self._disk.write(path, VOTER_MARK_TEXT)
        self.marked_voter = True

    def check_memory(self) -> None:
        """LogDirConfigError if this node was a voter, and its log or its vote is gone.

        A new disk has another directory id and is not a voter. But if only __cluster_metadata-0
        was deleted, the voter could help to elect a leader that lacks records which it had
        acknowledged, or vote twice in an epoch.
        """
        mark = f"{self.log.log_dir.path}/{VOTER_MARK}"
        empty = self.end_offset == 0 and not self._snapshots
        formatted = self._disk.exists(self._path(FORMATTED))
        lost = (empty and not formatted) or (not empty and self.read_vote() is None)
        if lost and self._disk.exists(mark):
            raise LogDirConfigError(
                f"{self._directory}: this node is a voter of the metadata quorum, and its log or "
                "its vote is missing. Restore the directory; or remove this voter from the cluster "
                "(kafka-metadata-quorum remove-controller, with the directory.id of "
                f"meta.properties), delete {mark}, start the node and add it again. (A broker that "
                "was a cluster of its own starts as a new cluster without that file, and keeps the "
                "logs that it finds as -stray.)"
            )

    def formatted_with(self) -> VoterSet:
        """The voters that the disk was formatted with; empty if the node joins other voters."""
        path = self._path(FORMATTED)
        return read_voters(self._disk.read(path)) if self._disk.exists(path) else VoterSet()

    def format(self, voters: VoterSet, now_ms: int) -> None:
        data = encode_snapshot(FORMATTED, voters, (), now_ms)
        self._disk.write(self._path(FORMATTED), data)
        self.mark_voter()

    # -- the log ----------------------------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> Offset:
        return self.log.log_end_offset

    def range(self, from_offset: Offset, max_bytes: int) -> FileRange | None:
        """The records for a follower's fetch; sent by sendfile."""
        return self.log.read(from_offset, max_bytes, self.end_offset)[0]

    def read(self, from_offset: Offset, max_bytes: int) -> tuple[Batch, ...]:
        found = self.range(from_offset, max_bytes)
        if found is None:
            return ()
        return parse_batches(_file(found.file).pread(found.length, found.position))

    def append(self, batches: tuple[Batch, ...], now_ms: int = 0) -> None:
        """Batches of another leader are written as they are; own ones get offset and epoch."""
        for batch in batches:
            assert batch.base_offset == self.end_offset
            data = batch.data
            if not data:
                data = build_control_batch(batch.control, batch.base_offset, batch.epoch, now_ms)
            if read_header(data).partition_leader_epoch == NO_LEADER_EPOCH:
                self.log.append_as_leader(data, batch.epoch, now_ms, from_client=False)
            else:
                self.log.append_as_follower(data)
            assert self.end_offset == batch.end_offset
        self.log.write_pending()

    def truncate_to(self, end_offset: Offset) -> None:
        self.log.truncate_to(end_offset)

    def flush(self) -> None:
        """Runs in a thread."""
        self.log.flush()

    def trim_to(self, start_offset: Offset, now_ms: int = 0) -> None:
        log = self.log
        log.advance_log_start_offset(start_offset)
        log.delete_old_segments(now_ms)
        self._forget_snapshots_before(start_offset)

    def remove_doomed(self, now_ms: int) -> None:
        """Deletes the files that `trim_to` removed from the log long enough ago."""
        log_dir = self.log.log_dir
        log_dir.remove(log_dir.take_due_removals(now_ms))

    # -- snapshots ----------------------------------------------------------------------------

    def snapshots(self) -> tuple[tuple[SnapshotInfo, VotersAt], ...]:
        return tuple(self._snapshots[snapshot_id] for snapshot_id in sorted(self._snapshots))

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Runs in a thread; call `snapshot_written` afterwards."""
        part = self._path(snapshot_id) + PART
        file = self._disk.open(part, create=True)
        file.truncate(0)
        file.pwritev([data], 0)
        file.fsync()
        self._publish(part, snapshot_id)

    def snapshot_written(self, info: SnapshotInfo, voters: VoterSet) -> None:
        self._snapshots[info.id] = (info, VotersAt(info.id.offset - 1, voters))

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> bytes:
        return self._disk.read(self._path(snapshot_id))

    def read_snapshot_chunk(
        self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
    ) -> bytes:
        return self._disk.open(self._path(snapshot_id)).pread(max_bytes, position)

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Writes a part of a download; position 0 starts over."""
        part = self._path(snapshot_id) + PART
        if position == 0 or self._download is None:
            self._download = self._disk.open(part, create=True)
            self._download.truncate(0)
        self._download.pwritev([data], position)

    def finish_download(self, snapshot_id: OffsetAndEpoch) -> VoterSet:
        """Runs in a thread. SnapshotError if the file is not a complete snapshot."""
        part = self._path(snapshot_id) + PART
        assert self._download is not None
        voters = read_voters(self._disk.read(part))
        self._download.fsync()
        self._download = None
        self._publish(part, snapshot_id)
        return voters

    def replace_by(self, info: SnapshotInfo, voters: VoterSet, now_ms: int) -> VotersAt:
        """Replaces the log: it is empty and begins where the snapshot ends."""
        self.log.truncate_fully_and_start_at(info.id.offset, now_ms)
        self.snapshot_written(info, voters)
        self._forget_snapshots_before(info.id.offset)
        return self._snapshots[info.id][1]

    def _publish(self, part: str, snapshot_id: OffsetAndEpoch) -> None:
        self._disk.rename(part, self._path(snapshot_id))
        self._disk.sync_dir(self._directory)

    def _forget_snapshots_before(self, offset: Offset) -> None:
        for snapshot_id in sorted(self._snapshots):
            if snapshot_id.offset < offset:
                self._disk.remove(self._path(snapshot_id))
                del self._snapshots[snapshot_id]

    def _path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self._directory}/{checkpoint_name(snapshot_id)}"


def parse_batches(data: Buffer) -> tuple[Batch, ...]:
    """All complete batches; DecodeError if one is damaged. A partial one at the end is left out."""
    return tuple(_parse_batches(memoryview(data)))


def _parse_batches(view: memoryview) -> Iterable[Batch]:
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = read_header(view, at)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_BYTES:
            raise DecodeError(f"invalid batch size of {size} bytes")
        if size > len(view) - at:
            return
        batch = view[at : at + size]
        if crc32c(batch[CRC_FROM:]) != header.crc:
            raise DecodeError(f"wrong CRC of the batch at offset {header.base_offset}")
        control = tuple(_known_controls(batch)) if header.is_control else ()
        yield Batch(
            header.base_offset,
            header.last_offset_delta + 1,
            header.partition_leader_epoch,
            control,
            bytes(batch),
        )
        at += size


def _known_controls(batch: memoryview) -> Iterator[LeaderChange | KRaftVersion | Voters]:
    for record in read_control_batch(batch):
        if not isinstance(record, LeaderChange | KRaftVersion | Voters):
            raise DecodeError("the log has a control record that belongs into a snapshot")
        yield record


def _file(file: object) -> File:
    """The range's file; all files of the log can be read."""
    assert hasattr(file, "pread")
    return file  # type: ignore[return-value]
