"""One compaction of one log.

    1  on the loop   note the segments and producers (the constructor)
    2  in a thread   read the dirty part into the offset map, until the map is full; flush
    3  in a thread   rewrite neighbouring segments as one `.cleaned` segment, and sync it
    4  on the loop   replace them with it if they still exist (only renames)
    5  in a thread   sync the directory; 3-5 for each group of segments, the oldest first
    6  in a thread   move the cleaner checkpoint

The thread reads sealed segments through file handles of its own, and changes what the loop's thread
owns only through `Loop.call`. Whatever happens meanwhile (truncation, retention,
deletion of the topic) is noticed in step 4, or earlier when a file is gone.

Groups are replaced from the oldest to the newest, so that a value never outlives the tombstone
that deletes it. The checkpoint comes last: after a crash the same part is cleaned again, which
changes nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, cast

from odradek_broker.log.batches import scan_batches
from odradek_broker.log.checkpoints import CLEANER_OFFSET, RECOVERY_POINT
from odradek_broker.log.cleanable import Cleanable, Source, group_sources
from odradek_broker.log.cleaned_transactions import CleanedTransactions
from odradek_broker.log.cleaner import BatchCleaner, CleanerStats, LastBatch
from odradek_broker.log.file_names import OFFSET_INDEX, TIME_INDEX, TXN_INDEX, file_name
from odradek_broker.log.offset_map import OffsetMap, memory_for
from odradek_broker.log.producer_state import ProducerEntry
from odradek_broker.log.record_columns import read_columns
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.txn_index import AbortedTxn
from odradek_broker.log.txn_index import parse as parse_txn_index
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.records.record_batch import CONTROL_BIT, BatchHeader, read_header
from odradek_protocol.records.records import uncompressed_records

T = TypeVar("T")


class CleaningAbortedError(Exception):
    """The log changed during the run. Nothing is lost; a later run starts again."""


class Loop(Protocol):
    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread; return its result or raise its exception."""


class CleaningLimits(NamedTuple):
    """Limits of one run."""

    map_bytes: int
    map_load_factor: float
    buffer_bytes: int  # for reading, and as much for writing


class CleanerRun:
    def __init__(
        self,
        cleanable: Cleanable,
        limits: CleaningLimits,
        loop: Loop,
        pace: Callable[[int], None],
        now_ms: int,
    ) -> None:
        """To be called in the loop's thread. `pace(bytes)` may wait, and raises to stop."""
        log = cleanable.log
        self.log = log
        self.stats = CleanerStats()
        self._first_dirty = cleanable.first_dirty_offset
        self._border = cleanable.first_uncleanable_offset
        self._limits = limits
        self._loop = loop
        self._pace = pace
        self._now_ms = now_ms
        self._disk = log.log_dir.disk
        self._config = log.config
        self._segments = log.segments
        self._truncations = log.truncations
        self._producers = dict(log.producers.entries)

    @property
    def outdated(self) -> bool:
        """The log was truncated or deleted."""
        return self.log.removed or self.log.truncations != self._truncations

    def run(self) -> CleanerStats:
        """To be called in a thread. An OSError is one of the log's directory."""
        started = time.perf_counter()
        aborted = self._read_aborted()
        offset_map = self._new_map()
        try:
            self._fill(offset_map, aborted)
            self.stats.map_seconds = time.perf_counter() - started
            self.stats.buffer_utilization = offset_map.utilization
            self._prepare_recovery()
            self._clean(offset_map, aborted)
            self._checkpoint(offset_map.latest_offset + 1)
        finally:
            offset_map.close()
        self.stats.seconds = time.perf_counter() - started
        return self.stats

    # Filling the map

    def _new_map(self) -> OffsetMap:
        """No larger than the dirty part can need."""
        limits = self._limits
        needed = memory_for(self._border - self._first_dirty, limits.map_load_factor)
        return OffsetMap(min(needed, limits.map_bytes), limits.map_load_factor)

    def _read_aborted(self) -> list[AbortedTxn]:
        """Aborted transactions of the whole log: a marker may be far behind its records."""
        found: list[AbortedTxn] = []
        for segment in self._segments:
            if not segment.has_aborted_transactions:
                continue
            try:
                found += parse_txn_index(self._disk.read(segment.path(TXN_INDEX)))
            except FileNotFoundError:
                self._check_there(segment)
                raise
        return found

    def _fill(self, offset_map: OffsetMap, aborted: Sequence[AbortedTxn]) -> None:
        """Note where each key of the dirty part was written last, until the map is full."""
        transactions = CleanedTransactions(aborted, self._first_dirty)
        for segment, end_offset in self._sealed(self._border):
            if end_offset <= self._first_dirty:
                continue
            for header, batch in self._batches(segment):
                if header.last_offset < self._first_dirty:
                    continue
                if header.attributes & CONTROL_BIT:
                    transactions.read_control(header, batch)
                elif not transactions.read_data(header) and not self._put(
                    offset_map, header, batch
                ):
                    return
                offset_map.latest_offset = header.last_offset
            offset_map.latest_offset = end_offset - 1  # there may be a gap before it

    def _put(self, offset_map: OffsetMap, header: BatchHeader, batch: Buffer) -> bool:
        """False if the map is full; `latest_offset` then says how far it got."""
        data = bytes(uncompressed_records(batch, header))
        columns = read_columns(data, header.record_count)
        base, first_dirty = header.base_offset, self._first_dirty
        keys, offsets = columns.keys, [base + delta for delta in columns.offset_deltas]
        if base < first_dirty or None in keys:
            wanted = [
                number
                for number, (key, offset) in enumerate(zip(keys, offsets, strict=True))
                if key is not None and offset >= first_dirty
            ]
            keys, offsets = [keys[n] for n in wanted], [offsets[n] for n in wanted]
        return offset_map.put(cast("list[bytes]", keys), offsets) == len(keys)

    def _prepare_recovery(self) -> None:
        """Recovery takes a gap for a lost record, so it must not read what was cleaned.

        It begins at the recovery point, which is moved past everything that is about to be
        cleaned. For the case that it has to read it all the same, an entry in the cleaner
        checkpoint says that there may be gaps.
        """
        while self.log.recovery_point < self._border:
            self._check_there()
            self.log.flush()
        write = self._loop.call(lambda: self.log.log_dir.checkpoints.prepare(RECOVERY_POINT))
        write()
        if self.log.cleaned_offset < 0:
            self._checkpoint(self._first_dirty)

    # Rewriting segments

    def _clean(self, offset_map: OffsetMap, aborted: Sequence[AbortedTxn]) -> None:
        transactions = CleanedTransactions(aborted, self._segments[0].base_offset)
        cleaner = BatchCleaner(
            offset_map,
            transactions,
            _last_batches(self._producers),
            end_offset=self._border,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            stats=self.stats,
        )
        for group in group_sources(self._sources(offset_map.latest_offset + 1), self._config):
            self._replace(group, cleaner, transactions)
            self._disk.sync_dir(self.log.dir)

    def _sources(self, end_offset: Offset) -> list[Source]:
        sizes = {entry.name: entry.size for entry in self._disk.scan(self.log.dir)}
        return [
            Source(
                segment,
                segment.base_offset,
                segment_end,
                segment.size,
                sizes.get(file_name(segment.base_offset, OFFSET_INDEX), 0),
                sizes.get(file_name(segment.base_offset, TIME_INDEX), 0),
            )
            for segment, segment_end in self._sealed(min(end_offset, self._border))
        ]

    def _replace(
        self, group: Sequence[Source], cleaner: BatchCleaner, transactions: CleanedTransactions
    ) -> None:
        """Write one segment for the whole group and swap it in, or leave the group unchanged."""
        cleaned = self.log.new_cleaned_segment(group[0].base_offset, self._now_ms)
        try:
            self._rewrite(group, cleaned, cleaner)
            for aborted in transactions.take_kept():
                cleaned.txn_index.append(aborted)
            cleaned.seal()
            cleaned.sync()
            old = [source.segment for source in group]
            self._loop.call(lambda: self._swap(old, cleaned))
        except BaseException:
            if cleaned.suffix:  # not in place
                cleaned.remove()
            raise

    def _swap(self, old: Sequence[LogSegment], cleaned: LogSegment) -> None:
        """In the loop's thread."""
        self._check_there(*old)
        replaced = self.log.replace_segments(old, [cleaned], self._now_ms)
        assert replaced  # they exist, and are neighbours

    def _rewrite(self, group: Sequence[Source], cleaned: LogSegment, cleaner: BatchCleaner) -> None:
        interval = self._config.index_interval_bytes
        out = bytearray()
        for source in group:
            for header, batch in self._batches(source.segment):
                kept = cleaner.clean(header, batch)
                if kept is None:
                    continue
                timestamp = (
                    header.max_timestamp if kept is batch else read_header(kept).max_timestamp
                )
                base, last = header.base_offset, header.last_offset
                cleaned.add(base, last, timestamp, len(kept), interval)
                out += kept
                if len(out) >= self._limits.buffer_bytes:
                    self._write(cleaned, out)
                    out = bytearray()
        self._write(cleaned, out)
        cleaned.recent = None  # used only at the end of a log

    def _write(self, cleaned: LogSegment, out: bytearray) -> None:
        if out:
            cleaned.write([out])
            self._pace(len(out))

    def _sealed(self, end_offset: Offset) -> Iterator[tuple[LogSegment, Offset]]:
        """The sealed segments that begin before this offset, and where they end."""
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            if segment.base_offset < end_offset:
                yield segment, following.base_offset

    def _batches(self, segment: LogSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        path = segment.path()
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            self._check_there(segment)
            raise
        chunk_bytes = self._limits.buffer_bytes
        for _, header, batch in scan_batches(file, path, 0, segment.size, chunk_bytes):
            self._pace(header.size)
            yield header, batch

    def _check_there(self, *segments: LogSegment) -> None:
        if self.outdated or any(segment not in self.log.segments for segment in segments):
            raise CleaningAbortedError(f"{self.log.dir} changed")

    def _checkpoint(self, offset: Offset) -> None:
        """Everything below `offset` is clean now."""

        def note() -> Callable[[], None]:
            self._check_there()
            self.log.cleaned_offset = offset
            return self.log.log_dir.checkpoints.prepare(CLEANER_OFFSET)

        write = self._loop.call(note)
        write()


def _last_batches(producers: Mapping[ProducerId, ProducerEntry]) -> dict[ProducerId, LastBatch]:
    """The loop's thread may be changing the entries: a slice is taken in one step."""
    found = {}
    for producer_id, entry in producers.items():
        last = entry.batches[-1:]
        found[producer_id] = LastBatch(last[0].last_offset if last else -1, entry.producer_epoch)
    return found
