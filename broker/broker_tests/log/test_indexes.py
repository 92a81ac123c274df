"""Offset, time and transaction index against plain lists; the warm section and the cold rest."""

from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_tests.sim.memory_disk import SimDisk, SimFile
from odradek_broker.log.index_file import BLOCK_BYTES, TAIL_BYTES, WARM_BYTES
from odradek_broker.log.offset_index import OffsetIndex, OffsetPosition
from odradek_broker.log.producer_state import CompletedTxn
from odradek_broker.log.time_index import TimeEntry, TimeIndex
from odradek_broker.log.txn_index import AbortedTxn, TxnIndex
from odradek_broker.runtime.disk import File

BASE = 5000
ENTRIES = 5000  # 40 KB: far more than the tail in memory and the warm section


class CountingDisk(SimDisk):
    """Counts the bytes that lookups read."""

    def __init__(self) -> None:
        super().__init__()
        self.make_dir("/i")
        self.reads: list[int] = []

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        reads = self.reads

        class Counting(SimFile):
            def pread(self, length: int, position: int) -> bytes:
                reads.append(length)
                return super().pread(length, position)

        return Counting(self, file._inode, path)


def offset_index(disk: SimDisk, entries: int) -> tuple[OffsetIndex, list[int]]:
    index = OffsetIndex(disk, "/i/index", BASE, 0)
    offsets = [BASE + 3 * n + 2 for n in range(entries)]
    for n, offset in enumerate(offsets):
        index.append(offset, 100 * n + 7)
    return index, offsets


@pytest.fixture(scope="module")
def large() -> tuple[CountingDisk, OffsetIndex, list[int]]:
    disk = CountingDisk()
    index, offsets = offset_index(disk, ENTRIES)
    return disk, index, offsets


@given(st.integers(BASE - 10, BASE + 3 * ENTRIES + 10))
def test_lookup_is_the_last_entry_at_or_before(
    large: tuple[CountingDisk, OffsetIndex, list[int]], target: int
) -> None:
    _, index, offsets = large
    slot = bisect_right(offsets, target) - 1
    expected = (
        OffsetPosition(BASE, 0) if slot < 0 else OffsetPosition(offsets[slot], 100 * slot + 7)
    )
    assert index.lookup(target) == expected


def test_sequential_lookups_need_one_read_per_512_entries() -> None:
    disk = CountingDisk()
    index, offsets = offset_index(disk, ENTRIES)
    disk.reads.clear()
    for slot, offset in enumerate(offsets):
        assert index.lookup(offset, keep=True) == OffsetPosition(offset, 100 * slot + 7)
    blocks = ENTRIES * 8 / BLOCK_BYTES
    cold_search = 10
    assert len(disk.reads) <= 2 * blocks + cold_search  # the warm section is looked at first


steps = st.lists(
    st.tuples(st.sampled_from(["keep", "look", "append", "cut"]), st.integers(0, 4 * ENTRIES))
)


@settings(max_examples=60)
@given(steps)
def test_lookups_agree_with_a_list_of_entries(steps: list[tuple[str, int]]) -> None:
    """Lookups by readers and others, while entries are added and cut off."""
    index, offsets = offset_index(CountingDisk(), 3000)
    for step, number in steps:
        if step == "append":
            for _ in range(number % 300):
                offsets.append((offsets[-1] if offsets else BASE) + 3)
                index.append(offsets[-1], 100 * (len(offsets) - 1) + 7)
        elif step == "cut":
            index.truncate_to(BASE + number)
            offsets = offsets[: bisect_left(offsets, BASE + number)]
        target = BASE + number
        slot = bisect_right(offsets, target) - 1
        expected = (
            OffsetPosition(BASE, 0) if slot < 0 else OffsetPosition(offsets[slot], 100 * slot + 7)
        )
        assert index.lookup(target, keep=step == "keep") == expected


def test_a_lookup_near_the_end_touches_only_the_warm_section(
    large: tuple[CountingDisk, OffsetIndex, list[int]],
) -> None:
    disk, index, offsets = large
    disk.reads.clear()
    assert index.lookup(offsets[-1]).offset == offsets[-1]
    assert disk.reads == []  # still in memory
    index.lookup(offsets[-1 - TAIL_BYTES // 8 - 100])
    assert disk.reads[0] == WARM_BYTES
    assert sum(disk.reads) <= WARM_BYTES + 8
    disk.reads.clear()
    index.lookup(offsets[10])
    assert sum(disk.reads) <= WARM_BYTES + 4096 + 16 * 8


def test_entries_survive_save_and_load() -> None:
    disk = CountingDisk()
    index, offsets = offset_index(disk, 300)
    index.save()
    again = OffsetIndex(disk, "/i/index", BASE, len(disk.read("/i/index")) // 8)
    assert len(again) == 300
    assert again.last() == OffsetPosition(offsets[-1], 100 * 299 + 7)
    assert [again.entry(n).offset for n in range(300)] == offsets


@settings(max_examples=60)
@given(
    entries=st.integers(0, 400),
    saved=st.booleans(),
    cut=st.integers(BASE - 5, BASE + 1210),
    more=st.integers(0, 5),
)
def test_truncation_forgets_the_offset_and_what_follows(
    entries: int, saved: bool, cut: int, more: int
) -> None:
    disk = CountingDisk()
    index, offsets = offset_index(disk, entries)
    if saved:
        index.save()
    index.truncate_to(cut)
    kept = [offset for offset in offsets if offset < cut]
    added = [max(kept, default=BASE) + 1 + n for n in range(more)]
    for offset in added:
        index.append(offset, 1)
    assert [index.entry(n).offset for n in range(len(index))] == kept + added


def test_the_time_index_takes_only_growing_timestamps() -> None:
    disk = CountingDisk()
    index = TimeIndex(disk, "/i/timeindex", BASE, 0)
    for timestamp, offset in ((100, 5002), (100, 5005), (90, 5007), (120, 5009)):
        index.append(timestamp, offset)
    assert [index.entry(n) for n in range(len(index))] == [
        TimeEntry(100, 5002),
        TimeEntry(120, 5009),
    ]
    assert index.lookup(99) == TimeEntry(-1, BASE)
    assert index.lookup(119) == TimeEntry(100, 5002)
    assert index.last() == TimeEntry(120, 5009)
    index.truncate_to(5009)
    index.append(110, 5010)
    assert index.last() == TimeEntry(110, 5010)


def test_the_transaction_index_keeps_and_cuts_aborted_transactions() -> None:
    disk = CountingDisk()
    index = TxnIndex(disk, "/i/txnindex", 0)
    assert index.read() == []
    first = AbortedTxn.of(CompletedTxn(7, 100, 120, True, 110))
    second = AbortedTxn(9, 110, 130, 131)
    index.append(first)
    index.append(second)
    assert len(disk.read("/i/txnindex")) == 2 * 34
    again = TxnIndex(disk, "/i/txnindex", 68)
    assert again.read() == [first, second]
    again.truncate_to(130)
    assert again.read() == [first]


def test_a_file_is_the_port_that_indexes_know() -> None:
    disk = CountingDisk()
    file: File = disk.open("/i/x", create=True)
    file.pwritev([b"ab", b"cd"], 0)
    assert file.pread(10, 1) == b"bcd"
