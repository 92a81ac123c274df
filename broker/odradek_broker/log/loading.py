"""Open the log of one partition from its directory, and recover it if the broker crashed.

After a clean shutdown only the names and sizes of the files are read, plus the last few
kilobytes of the last segment to find the log end offset. After a crash the segments that
reach past the recovery point are read and checked batch by batch. Example: segments 0, 100 and 200
with a recovery point of 150: 100 and 200 are read.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.log.errors import CorruptLogError
from odradek_broker.log.file_names import (
    INDEXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    parse_file_name,
)
from odradek_broker.log.leader_epochs import LeaderEpochs, parse_leader_epochs
from odradek_broker.log.leftovers import clear_leftovers
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.offset_index import OffsetIndex
from odradek_broker.log.partition_metadata import parse_partition_metadata
from odradek_broker.log.producer_replay import restore_producer_state, snapshot_path
from odradek_broker.log.recovery import recover_segment
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.state import LoadedLog
from odradek_broker.log.time_index import TimeIndex
from odradek_broker.log.txn_index import ENTRY as TXN_ENTRY
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import ZERO_UUID, Offset, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Mostly the log's entries in its directory's checkpoints."""

    clean: bool = True
    recovery_point: Offset = 0
    log_start_offset: Offset = 0
    gaps_allowed: bool = False  # it is compacted, or was; or its leader's log is
    cleaned_up_to: Offset = 0  # segments that begin before it may have been compacted here
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    on_segment_recovered: Callable[[int], None] = lambda _size: None


def load_log(
    log_dir: LogDir,
    topic_partition: TopicPartition,
    config: LogConfig,
    options: LoadOptions,
    now_ms: int,
    directory: str = "",
) -> Log:
    """OSError if the disk fails; damage in the files is repaired, at worst by truncating them.

    `directory` is given if it is not the one named after the partition.
    """
    return _Loader(log_dir, topic_partition, config, options, now_ms, directory).load()


class _Loader:
    def __init__(
        self,
        log_dir: LogDir,
        topic_partition: TopicPartition,
        config: LogConfig,
        options: LoadOptions,
        now_ms: int,
        directory: str,
    ) -> None:
        self.log_dir = log_dir
        self.disk = log_dir.disk
        self.topic_partition = topic_partition
        self.directory = directory or f"{log_dir.path}/{topic_partition}"
        self.config = config
        self.options = options
        self.now_ms = now_ms
        self.sizes: dict[tuple[Offset, str], int] = {}  # (base offset, kind) → bytes
        self.segments: list[LogSegment] = []
        self.epochs = LeaderEpochs()
        self.end_offset: Offset = 0
        # Transaction indexes of segments from here on are not trusted.
        self.txn_index_from: Offset | None = None

    def load(self) -> Log:
        self._find_files()
        epochs_known = self._load_epochs()
        self._repair_indexes()
        self._recover()
        self._find_end()
        self._start_anew_if_behind_log_start()
        if not epochs_known:
            self._read_epochs_from_batches()
        log_start_offset = max(self.options.log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.epochs.truncate_from_start(log_start_offset)
        producers = restore_producer_state(
            self.disk,
            self.directory,
            self.segments,
            self._snapshots(),
            self.end_offset,
            self.txn_index_from,
        )
        producers.expire(self.now_ms, self.options.producer_id_expiration_ms)
        clean = self.options.clean and self.txn_index_from is None
        known = self.options.recovery_point
        loaded = LoadedLog(
            segments=self.segments,
            log_start_offset=log_start_offset,
            log_end_offset=self.end_offset,
            recovery_point=self.end_offset if clean else min(known, self.end_offset),
            checkpointed=known,
            epochs=self.epochs,
            producers=producers,
            topic_id=self._topic_id(),
        )
        return Log(self.log_dir, self.directory, self.topic_partition, self.config, loaded)

    def _find_files(self) -> None:
        for entry in clear_leftovers(self.disk, self.directory, self._end_of_swap):
            parsed = parse_file_name(entry.name)
            if parsed is not None and parsed[2] == "":
                self.sizes[parsed[0], parsed[1]] = entry.size
        for base_offset, kind in sorted(self.sizes):
            if kind == LOG:
                self.segments.append(self._segment(base_offset))
            elif kind in INDEXES and (base_offset, LOG) not in self.sizes:
                name = f"{base_offset:020d}{kind}"
                logger.warning("%s: removing %s, it has no log file", self.directory, name)
                self.disk.remove(f"{self.directory}/{name}")
        for segment in self.segments[:-1]:
            segment.sealed = segment.synced = True

    def _segment(self, base_offset: Offset) -> LogSegment:
        size, *indexes = (self.sizes.get((base_offset, kind), 0) for kind in SEGMENT_FILES)
        return LogSegment(
            self.log_dir.files,
            self.directory,
            base_offset,
            size=size,
            index_sizes=(indexes[0], indexes[1], indexes[2]),
            created_ms=self.now_ms,
        )

    def _end_of_swap(self, base_offset: Offset, size: int) -> Offset:
        files = self.log_dir.files
        segment = LogSegment(files, self.directory, base_offset, size=size, suffix=SWAP)
        end = base_offset
        for _, header in segment.headers():
            end = header.next_offset
        return end

    def _repair_indexes(self) -> None:
        """Check the indexes of sealed segments that recovery does not read."""
        for segment in self.segments[: self._first_unflushed()]:
            offset_bytes, time_bytes, txn_bytes = segment.index_sizes
            if txn_bytes % TXN_ENTRY.size:
                self._distrust_txn_index(segment)
            if segment.size == 0 or not segment.sealed:
                continue
            if (
                (segment.base_offset, INDEXES[0]) not in self.sizes
                or offset_bytes % OffsetIndex.ENTRY.size
                or time_bytes % TimeIndex.ENTRY.size
                or not segment.indexes_plausible()
            ):
                segment.rebuild_indexes(self.config.index_interval_bytes)

    def _first_unflushed(self) -> int:
        if self.options.clean:
            return len(self.segments)
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, self.options.recovery_point) - 1)

    def _recover(self) -> None:
        at = first = self._first_unflushed()
        expected: Offset = 0
        while at < len(self.segments):
            segment = self.segments[at]
            if at > first and self._hole_before(at, expected):
                logger.warning(
                    "%s: expected offset %s before it; dropping what follows",
                    segment.path(),
                    expected,
                )
                self._drop_from(at)
                break
            size = segment.size
            segment.synced = False
            expected, truncated = self._recover_segment(segment)
            self.options.on_segment_recovered(size)
            at += 1
            if truncated:
                self._drop_from(at)

    def _hole_before(self, at: int, expected: Offset) -> bool:
        """A segment ends where the next begins, unless compaction removed its last batches."""
        if self.segments[at].base_offset == expected:
            return False
        cleaned = self.segments[at - 1].base_offset < self.options.cleaned_up_to
        return not (self.options.gaps_allowed and cleaned)

    def _recover_segment(self, segment: LogSegment) -> tuple[Offset, int]:
        self._distrust_txn_index(segment)
        interval = self.config.index_interval_bytes
        end_offset, truncated = recover_segment(
            segment, self.epochs, interval, gaps_allowed=self.options.gaps_allowed
        )
        return end_offset, truncated

    def _drop_from(self, at: int) -> None:
        """Remove everything after a damaged batch."""
        if at >= len(self.segments):
            return  # e.g. a new log: without this fsync 1,000 new partitions are seconds faster
        for segment in self.segments[at:]:
            logger.warning("%s: removed, it follows a damaged batch", segment.path())
            segment.remove()
        del self.segments[at:]
        self.disk.sync_dir(self.directory)
        if self.segments:
            self.segments[-1].sealed = self.segments[-1].synced = False

    def _find_end(self) -> None:
        """Read the last segment from its last index entry to its end."""
        if not self.segments:
            return
        last = self.segments[-1]
        try:
            self.end_offset = last.find_end()
        except CorruptLogError as error:
            logger.warning("%s; recovering the segment", error)
            self.end_offset, _ = self._recover_segment(last)

    def _start_anew_if_behind_log_start(self) -> None:
        start = self.options.log_start_offset
        if self.segments and self.end_offset >= start:
            return
        self._drop_from(0)
        files = self.log_dir.files
        segment = LogSegment(files, self.directory, start, created_ms=self.now_ms)
        segment.create()
        self.segments = [segment]
        self.end_offset = start
        self.epochs.clear()

    def _load_epochs(self) -> bool:
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        epochs = parse_leader_epochs(self.disk.read(path)) if self.disk.exists(path) else None
        if epochs is None:
            return False
        self.epochs = epochs
        return True

    def _read_epochs_from_batches(self) -> None:
        for segment in self.segments:
            for _, header in segment.headers():
                if header.partition_leader_epoch > self.epochs.latest:
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _snapshots(self) -> list[Offset]:
        """Producer snapshots at base offsets of segments, and the newest (of a clean shutdown)."""
        found = sorted(offset for offset, kind in self.sizes if kind == SNAPSHOT)
        bases = {segment.base_offset for segment in self.segments}
        kept = [offset for offset in found if offset in bases or offset == found[-1]]
        for offset in found:
            if offset not in kept:
                self.disk.remove(snapshot_path(self.directory, offset))
        return kept

    def _distrust_txn_index(self, segment: LogSegment) -> None:
        if self.txn_index_from is None:
            self.txn_index_from = segment.base_offset

    def _topic_id(self) -> UUID:
        path = f"{self.directory}/{PARTITION_METADATA}"
        found = parse_partition_metadata(self.disk.read(path)) if self.disk.exists(path) else None
        return found or ZERO_UUID
