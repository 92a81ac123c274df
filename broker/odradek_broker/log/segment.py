"""One segment of a log: a file of record batches and its indexes.

The log appends to the last segment only. `size` counts queued batches, `written` those that the
kernel has; readers read up to `written`. Lookups try the recent batches in memory first, then the
offset index and a scan of headers. Example: a segment with the base offset 100 and 900 bytes of
batches, of which 200 are queued, has `size=900 written=700`.

A loaded segment knows only its name and size; its file and indexes are opened when needed.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek_broker.log.batches import header_problem, scan_headers
from odradek_broker.log.errors import CorruptLogError
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.file_names import (
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    TIME_INDEX,
    TXN_INDEX,
    file_name,
)
from odradek_broker.log.offset_index import OffsetIndex, OffsetPosition
from odradek_broker.log.recent import RecentBatches
from odradek_broker.log.time_index import NO_TIMESTAMP, TimeEntry, TimeIndex
from odradek_broker.log.txn_index import TxnIndex
from odradek_broker.runtime.disk import Buffer, File
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import HEADER_BYTES, BatchHeader, read_header

logger = logging.getLogger(__name__)

# Offsets in the index files are relative to the base offset and have 31 bits.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
# For an index that is rebuilt at a lookup; elsewhere the topic's index.interval.bytes is used.
INDEX_INTERVAL_BYTES: Final = 4096


class Location(NamedTuple):
    """The place of a batch in its segment."""

    base_offset: Offset
    position: int
    size: int


class LogSegment:
    """Invariants:
    written <= size; they differ only in the active segment, between append and write
    every indexed position is the start of a batch, every indexed offset is below the end
    synced: sealed, and file and indexes were fsynced; only a truncation resets it
    """

    __slots__ = (
        "_dir",
        "_file",
        "_files",
        "_max",
        "_offset_index",
        "_time_index",
        "_txn_index",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "index_sizes",
        "recent",
        "sealed",
        "size",
        "suffix",
        "synced",
        "used",
        "written",
    )

    def __init__(
        self,
        files: FileCache,
        directory: str,
        base_offset: Offset,
        *,
        size: int = 0,
        index_sizes: tuple[int, int, int] = (0, 0, 0),
        created_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._files = files
        self._dir = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.size = size
        self.written = size
        self.created_ms = created_ms
        self.index_sizes = index_sizes  # bytes of .index, .timeindex, .txnindex when loaded
        self.sealed = False
        self.synced = False
        self.used = False
        self.bytes_since_index = 0
        self.first_timestamp: int | None = None if size else NO_TIMESTAMP
        self.recent: RecentBatches | None = None
        self._max: TimeEntry | None = None if size else TimeEntry(NO_TIMESTAMP, base_offset)
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None

    def __repr__(self) -> str:
        return f"LogSegment({self.path()}, size={self.size})"

    # Files

    def path(self, kind: str = LOG) -> str:
        return f"{self._dir}/{file_name(self.base_offset, kind, self.suffix)}"

    def file(self) -> File:
        self.used = True
        file = self._file
        if file is None:
            file = self._file = self._files.open(self, self.path(), create=False)
        return file

    def create(self) -> None:
        """Create the file of a new segment; its name alone keeps the log end across a restart."""
        self._file = self._files.open(self, self.path(), create=True)

    def release_file(self) -> None:
        self._file = None
        if self._offset_index is not None:
            self._offset_index.forget_block()

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            entries = self.index_sizes[0] // OffsetIndex.ENTRY.size
            path = self.path(OFFSET_INDEX)
            index = OffsetIndex(self._files.disk, path, self.base_offset, entries)
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            entries = self.index_sizes[1] // TimeIndex.ENTRY.size
            path = self.path(TIME_INDEX)
            index = TimeIndex(self._files.disk, path, self.base_offset, entries)
            self._time_index = index
        return index

    @property
    def txn_index(self) -> TxnIndex:
        index = self._txn_index
        if index is None:
            index = TxnIndex(self._files.disk, self.path(TXN_INDEX), self.index_sizes[2])
            self._txn_index = index
        return index

    @property
    def has_aborted_transactions(self) -> bool:
        index = self._txn_index
        return self.index_sizes[2] > 0 if index is None else len(index) > 0

    # Appending

    def add(
        self, base: Offset, last: Offset, max_timestamp: int, size: int, index_interval: int
    ) -> None:
        """Account for a batch that is queued after all others of this segment."""
        position = self.size
        if position == 0:
            self.first_timestamp = max_timestamp
        self.index(last, max_timestamp, position, size, index_interval)
        recent = self.recent
        if recent is None:
            recent = self.recent = RecentBatches()
        recent.add(base - self.base_offset, last - self.base_offset, position)
        self.size = position + size

    def index(
        self, last: Offset, max_timestamp: int, position: int, size: int, index_interval: int
    ) -> None:
        """Add a batch to the indexes, which get an entry about every `index_interval` bytes."""
        largest = self._max or self.max_timestamp
        if max_timestamp > largest.timestamp:
            self._max = largest = TimeEntry(max_timestamp, last)
        if self.bytes_since_index > index_interval:
            self.offset_index.append(last, position)
            self.time_index.append(largest.timestamp, largest.offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Hand queued batches to the kernel: all that were added since the last write."""
        self.file().pwritev(buffers, self.written)
        self.written = self.size

    def seal(self) -> None:
        """No more appends: complete the indexes, so that retention and lookups can rely on them."""
        self.time_index.append(*self.max_timestamp)
        self.offset_index.save()
        self.time_index.save()
        self.sealed = True

    def sync(self) -> None:
        """fsync, from any thread. The indexes of the active segment need none: see recovery."""
        sealed = self.sealed
        self.file().fsync()
        if sealed:
            for kind in SEGMENT_FILES[1:]:
                path = self.path(kind)
                if self._files.disk.exists(path):
                    self._files.disk.open(path).fsync()
            self.synced = True

    # Looking up

    def locate(self, offset: Offset) -> Location | None:
        """The first batch that ends at or after this offset; None if all end before it."""
        recent = self.recent
        if recent is not None:
            found = recent.find(offset - self.base_offset)
            if found >= 0:
                positions = recent.positions
                if found == len(positions):
                    return None
                position = positions[found]
                end = positions[found + 1] if found + 1 < len(positions) else self.size
                base = self.base_offset + recent.bases[found]
                return Location(base, position, end - position)
        for position, header in self.headers(self.position_before(offset, keep=True)):
            if header.last_offset >= offset:
                return Location(header.base_offset, position, header.size)
        return None

    def position_before(self, offset: Offset, *, keep: bool = False) -> int:
        """A batch border from which a scan finds this offset; detects damaged index entries.

        `keep`: for a reader that will continue from there (index_file.py).
        An entry is trusted only if a plausible batch starts there, at or before the offset. If not,
        the index is rebuilt from the log.
        """
        if self.size == 0:
            return 0
        entry = self.offset_index.lookup(offset, keep=keep)
        if entry.position == 0:
            return 0
        if not self._plausible(entry, offset):
            self.rebuild_indexes()
            entry = self.offset_index.lookup(offset)
        return entry.position

    def offset_bound(self, position: int) -> Offset | None:
        """An offset that no batch before this position reaches; None if the index has none."""
        index = self.offset_index
        slot = index.search(position - 1, column=1) + 1
        return index.entry(slot).offset + 1 if slot < len(index) else None

    def _plausible(self, entry: OffsetPosition, offset: Offset) -> bool:
        if not self.base_offset <= entry.offset <= offset:
            return False
        if not 0 <= entry.position < self.written:
            # The entry of a queued batch is in memory and was made by this process.
            return self.written <= entry.position < self.size
        raw = self.file().pread(HEADER_BYTES, entry.position)
        if len(raw) < HEADER_BYTES:
            return False
        header = read_header(raw)
        return (
            header_problem(header, self.written - entry.position) is None
            and self.base_offset <= header.base_offset <= entry.offset
        )

    def position_before_timestamp(self, timestamp: int) -> int:
        """A batch border at or before the first batch with at least this timestamp.

        An entry of the time index is trusted only if the batch at its offset has exactly that
        timestamp, or is still queued: then the entry is in memory and was made by this process.
        """
        entry = self.time_index.lookup(timestamp)
        if entry.timestamp == NO_TIMESTAMP:
            return 0
        position = self.position_before(entry.offset)
        for _, header in self.headers(position):
            if header.last_offset >= entry.offset:
                if header.max_timestamp == entry.timestamp:
                    return position
                break
        else:
            if self.written < self.size:
                return position
        self.rebuild_indexes()
        return self.position_before(self.time_index.lookup(timestamp).offset)

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return scan_headers(self.file(), self.path(), start, self.written)

    @property
    def max_timestamp(self) -> TimeEntry:
        """The largest timestamp of this segment and the end of the first batch that has it."""
        if self._max is None:
            self._max = self._load_max_timestamp()
        return self._max

    def retention_timestamp(self) -> int:
        """The largest timestamp; the modification time of the file if no record has one."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self._files.disk.modified_ms(self.path())

    def _load_max_timestamp(self) -> TimeEntry:
        """From the last entry of the time index on, in case the end of the index was lost.

        The entry itself is checked: retention must not delete because of a flipped bit.
        """
        entry = self.time_index.last()
        found = TimeEntry(NO_TIMESTAMP, self.base_offset)
        try:
            for _, header in self.headers(self.position_before(entry.offset)):
                if header.max_timestamp > found.timestamp:
                    found = TimeEntry(header.max_timestamp, header.last_offset)
        except CorruptLogError:
            return entry
        if found.timestamp < entry.timestamp:
            found = self.rebuild_indexes()
        return found

    def indexes_plausible(self) -> bool:
        """Kafka's sanity checks, for an index that is used without a rebuild."""
        last = self.offset_index.last()
        if len(self.offset_index) and not (
            self.base_offset < last.offset and 0 < last.position < self.size
        ):
            return False
        if not len(self.time_index):
            return True
        first_time, last_time = self.time_index.entry(0), self.time_index.last()
        return first_time.timestamp <= last_time.timestamp and last_time.offset >= self.base_offset

    def find_end(self) -> Offset:
        """The offset after the last batch, read from the end of the file."""
        end = self.base_offset
        start = self.position_before(self.base_offset + RELATIVE_OFFSET_MAX)
        for _, header in self.headers(start):
            end = header.next_offset
        self.bytes_since_index = self.size - start
        return end

    # Maintenance

    def clear_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self.bytes_since_index = 0
        self._max = TimeEntry(NO_TIMESTAMP, self.base_offset)

    def rebuild_indexes(self, index_interval: int = INDEX_INTERVAL_BYTES) -> TimeEntry:
        """Rebuild offset and time index from the batch headers; returns the largest timestamp."""
        logger.warning("%s: an index is damaged, rebuilding both", self.path())
        queued_max = self._max if self.written < self.size else None
        self.clear_indexes()
        for position, header in self.headers():
            self.index(
                header.last_offset, header.max_timestamp, position, header.size, index_interval
            )
        if queued_max is not None and queued_max.timestamp > self.max_timestamp.timestamp:
            self._max = queued_max  # of a batch that is not in the file yet
        if self.sealed:
            self.seal()
        return self.max_timestamp

    def cut(self, position: int) -> None:
        """Truncate the file to this position (a batch border), durably.

        Without the fsync old batches could reappear after a crash, behind new ones that were
        written at this position.
        """
        self.file().truncate(position)
        self.file().fsync()
        self.size = self.written = position
        if position == 0:
            self.first_timestamp = NO_TIMESTAMP
        if self.recent is not None:
            self.recent.truncate(position)

    def truncate_to(self, offset: Offset) -> Offset:
        """Drop all batches that reach to this offset or past it; returns the new end offset.

        That is `offset`, or the start of a dropped batch that began before it.
        """
        found = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if self.has_aborted_transactions:
            self.txn_index.truncate_to(offset)
        if found is not None:
            self.cut(found.position)
        self._max = None if self.size else TimeEntry(NO_TIMESTAMP, self.base_offset)
        self.bytes_since_index = self.size - self.offset_index.last().position
        return offset if found is None else min(offset, found.base_offset)

    def rename(self, suffix: str) -> None:
        """Change the suffix of all files of this segment, e.g. from "" to `.deleted`."""
        disk = self._files.disk
        old = [(kind, self.path(kind)) for kind in SEGMENT_FILES]
        self.suffix = suffix
        for kind, path in old:
            if disk.exists(path):
                disk.rename(path, self.path(kind))
        self._update_index_paths()

    def _update_index_paths(self) -> None:
        for index, kind in (
            (self._offset_index, OFFSET_INDEX),
            (self._time_index, TIME_INDEX),
            (self._txn_index, TXN_INDEX),
        ):
            if index is not None:
                index.path = self.path(kind)

    def relocate(self, directory: str) -> None:
        """The directory was renamed."""
        self._dir = directory
        self._update_index_paths()

    def remove(self) -> None:
        for kind in SEGMENT_FILES:
            self._files.disk.remove(self.path(kind))
        self.release_file()

    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch, or -1."""
        first = self.first_timestamp
        if first is None:
            first = next((header.max_timestamp for _, header in self.headers()), NO_TIMESTAMP)
            self.first_timestamp = first
        return first
