"""A compacted log, compared with a list of every record that was ever written to it.

`CompactedLog` writes random histories (plain, idempotent and transactional producers) and keeps
them; `verify` checks that the log, however it was cleaned, crashed and reopened, keeps the
guarantees of compaction.
"""

import copy
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from broker_tests.log.support import (
    NOW_MS,
    SETTINGS,
    TOPIC_ID,
    TP,
    aborted_transactions,
    batches_of,
    commit,
    fetch,
    roll,
)
from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.cleanable import find_cleanable
from odradek_broker.log.cleaner import CleanerStats
from odradek_broker.log.cleaner_run import CleanerRun, CleaningLimits
from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.log.offset_map import ENTRY_BYTES
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    crc_matches,
    read_header,
)
from odradek_protocol.records.records import (
    NO_PRODUCER,
    BatchProducer,
    Record,
    build_batch,
    read_records,
)

T = TypeVar("T")

CONFIG = LogConfig(
    cleanup_compact=True,
    cleanup_delete=False,
    segment_bytes=700,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)
EPOCH = 3
MAP_SLOTS = 10_007  # a prime, so that the map has exactly this many slots


class Direct:
    """Calls at once: there is no other thread."""

    def call(self, function: Callable[[], T]) -> T:
        return function()


def unhurried(_number: int) -> None:
    """A pace function without a throttle."""


class Written(NamedTuple):
    record: Record
    producer_id: int
    transactional: bool


class CompactedLog:
    """`written`: every record ever, by offset. `aborted`: offsets of aborted ones."""

    def __init__(self, disk: Disk, config: LogConfig = CONFIG, directory: str = "/data") -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.clock = ManualClock(NOW_MS)
        self.written: dict[Offset, Written] = {}
        self.aborted: set[Offset] = set()
        self.open_transactions: dict[int, list[Offset]] = {}
        self.sequences: dict[int, int] = defaultdict(int)
        self.last_batch: dict[int, tuple[bytes, Offset]] = {}
        self.log_end: Offset = 0
        self.manager, self.log = self._open()

    def _open(self) -> tuple[LogManager, Log]:
        manager = LogManager([self.directory], self.disk, self.clock, SETTINGS)
        manager.load(config_of=lambda _topic_partition: self.config)
        log = manager.get_or_create(TP, TOPIC_ID, self.config)
        log.high_watermark = log.written_offset
        return manager, log

    # Writing

    def write(
        self, pairs: list[tuple[str, str | None]], *, producer: int = -1, codec: int = 0
    ) -> Offset:
        now_ms = self.clock.now_ms()
        records = [
            Record(
                number,
                now_ms - number,
                key.encode(),
                None if value is None else value.encode(),
                [(b"n", b"%d" % number)],
            )
            for number, (key, value) in enumerate(pairs)
        ]
        transactional = producer in TRANSACTIONAL
        batch = build_batch(
            records,
            codec=codec,
            producer=NO_PRODUCER
            if producer < 0
            else BatchProducer(producer, EPOCH, self.sequences[producer]),
            transactional=transactional,
        )
        base = self.log.append_as_leader(bytearray(batch), 0, now_ms).first_offset
        commit(self.log)
        offsets = range(base, base + len(pairs))
        for offset, record in zip(offsets, records, strict=True):
            kept = Written(record._replace(offset=offset), producer, transactional)
            self.written[offset] = kept
        if producer >= 0:
            self.sequences[producer] += len(pairs)
            self.last_batch[producer] = (batch, base)
        if transactional:
            self.open_transactions.setdefault(producer, []).extend(offsets)
        self.log_end = self.log.log_end_offset
        return base

    def end_transaction(self, producer: int, *, commits: bool) -> None:
        offsets = self.open_transactions.pop(producer, None)
        if offsets is None:
            return
        marker = EndTxnMarker(commits, 0)
        self.log.append_control(producer, EPOCH, marker, 0, self.clock.now_ms())
        commit(self.log)
        if not commits:
            self.aborted.update(offsets)
        self.log_end = self.log.log_end_offset

    def roll(self) -> None:
        roll(self.log, self.clock.now_ms())

    # Cleaning and reopening

    def new_run(self, map_keys: int = 10_000) -> CleanerRun | None:
        """None if nothing is dirty."""
        cleanable = find_cleanable(self.log, self.clock.now_ms())
        if not cleanable.is_due:
            return None
        limits = CleaningLimits(MAP_SLOTS * ENTRY_BYTES, (map_keys + 0.5) / MAP_SLOTS, 256)
        return CleanerRun(cleanable, limits, Direct(), unhurried, self.clock.now_ms())

    def clean(self, map_keys: int = 10_000) -> CleanerStats | None:
        run = self.new_run(map_keys)
        return run.run() if run else None

    def close(self) -> None:
        self.manager.close()

    def on_a_copy_of_its_disk(self) -> "CompactedLog":
        """As the next process opens it; the list of records is shared, so write no more."""
        other = copy.copy(self)
        other.disk = disk = copy.deepcopy(self.disk)
        assert isinstance(disk, SimDisk)
        disk._locks.clear()
        other.manager, other.log = other._open()
        return other

    def reopen(self) -> None:
        """The next process, after a clean shutdown or not."""
        for log_dir in self.manager.dirs:
            log_dir.close(clean=False)
        self.manager, self.log = self._open()

    # Checking

    def verify(self) -> None:
        batches = self._all_batches()
        self._verify_batches(batches)
        visible = self._visible(batches)
        self._verify_latest(visible)
        self._verify_cleaned(batches)
        self._verify_reads(batches)
        self._verify_producers()

    def _all_batches(self) -> list[bytes]:
        found = []
        offset = self.log.log_start_offset
        while data := fetch(self.log, offset):
            whole = list(batches_of(data))
            found += whole
            offset = read_header(whole[-1]).next_offset
        return found

    def _verify_batches(self, batches: list[bytes]) -> None:
        """Batches are whole and in order, and every record is the one written at its offset."""
        end = self.log.log_start_offset
        for batch in batches:
            header = read_header(batch)
            assert crc_matches(memoryview(batch), header.crc)
            assert header.base_offset >= end
            end = header.next_offset
            records = list(read_records(batch))
            assert header.record_count == len(records)
            if header.is_control:
                continue
            if records:
                assert header.max_timestamp == max(record.timestamp for record in records)
            for record in records:
                assert record == self.written[record.offset].record
        assert self.log.log_end_offset == self.log_end

    def _visible(self, batches: list[bytes]) -> dict[bytes, dict[Offset, bytes | None]]:
        """The log as a reader of committed records sees it: per key its offsets and values."""
        stable = self.log.last_stable_offset
        aborted = aborted_transactions(self.log, self.log.log_start_offset, stable)
        begins = sorted((one.first_offset, one.producer_id) for one in aborted)
        skipping: set[int] = set()
        visible: dict[bytes, dict[Offset, bytes | None]] = defaultdict(dict)
        for batch in batches:
            header = read_header(batch)
            while begins and begins[0][0] <= header.last_offset:
                skipping.add(begins.pop(0)[1])
            if header.attributes & CONTROL_BIT:
                skipping.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in skipping):
                for record in read_records(batch):
                    if record.offset < stable:
                        assert record.offset not in self.aborted
                        assert record.key is not None
                        visible[record.key][record.offset] = record.value
        return visible

    def _verify_latest(self, visible: dict[bytes, dict[Offset, bytes | None]]) -> None:
        """Each key has its last value; a deleted one has its tombstone or nothing at all."""
        stable = self.log.last_stable_offset
        latest: dict[bytes, Record] = {}
        for offset, written in self.written.items():
            if offset < stable and offset not in self.aborted:
                assert written.record.key is not None
                latest[written.record.key] = written.record
        assert visible.keys() <= latest.keys()
        for key, record in latest.items():
            seen = visible.get(key, {})
            if record.value is None and not seen:
                continue
            assert max(seen) == record.offset, key
            assert seen[record.offset] == record.value

    def _verify_cleaned(self, batches: list[bytes]) -> None:
        """Below the checkpoint every key is there once, and nothing that was aborted."""
        seen: set[bytes] = set()
        for batch in batches:
            if read_header(batch).is_control:
                continue
            for record in read_records(batch):
                if record.offset < self.log.cleaned_offset:
                    assert record.offset not in self.aborted
                    assert record.key is not None
                    assert record.key not in seen, record
                    seen.add(record.key)

    def _verify_reads(self, batches: list[bytes]) -> None:
        """A fetch from any offset begins with the batch that has it, or the next one."""
        ends = [read_header(batch).last_offset for batch in batches]
        for offset in range(self.log.log_start_offset, self.log.log_end_offset):
            expected = next((b for b, end in zip(batches, ends, strict=True) if end >= offset), b"")
            assert fetch(self.log, offset)[: len(expected)] == expected

    def _verify_producers(self) -> None:
        """Known producers continue with their next sequence, and duplicates are recognised."""
        for producer, sequence in self.sequences.items():
            entry = self.log.producers.entries[producer]
            assert entry.last_sequence == sequence - 1
            assert entry.producer_epoch == EPOCH
            if producer in IDEMPOTENT:
                batch, base = self.last_batch[producer]
                info = self.log.append_as_leader(bytearray(batch), 0, self.clock.now_ms())
                assert (info.duplicate, info.first_offset) == (True, base)
        ongoing = {self.log.producers.ongoing[offset] for offset in self.log.producers.ongoing}
        assert ongoing == set(self.open_transactions)
