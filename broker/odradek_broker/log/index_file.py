"""The common part of the offset index and the time index: a file of fixed-size entries.

Entries are appended in order of their key. The newest ones wait in memory (`_tail`) and go to
the file in groups; roll and close write the rest. A crash may lose the end of the file; a
short index only makes the scan longer, and recovery rebuilds the indexes of unflushed segments.

Searching: most lookups are for the end of the index (followers and consumers near the end of
the log). A plain binary search starts in the middle and so touches pages that are not in the page
cache. Therefore the last 8,192 bytes, the warm section, are searched first, and the rest only if
the key is before them. Here the warm section is `_tail` plus one read of 8,192 bytes.
A consumer that reads a log from its beginning looks up one entry after the other: for it the block
that was read last is kept, and one read serves 512 lookups. Blocks of other lookups are not kept
(retention reads every segment), and a block is dropped when the segment's file is closed.
Example: an offset index of 262,144 entries (a 1 GB segment, 2 MB): a lookup near the end is
one read; a cold one takes about 10 reads of 8 bytes and one of 4,096; the next ones take none.
"""

from struct import Struct
from typing import ClassVar, Final

from odradek_broker.log.dir_failure import is_of_the_process
from odradek_broker.runtime.disk import Disk, File

WARM_BYTES: Final = 8192
# Entries kept in memory before they are written: 128 offset entries, about 512 KB of log.
TAIL_BYTES: Final = 1024
# A cold search reads entry by entry until half of this is left to search, then reads that at once.
BLOCK_BYTES: Final = 4096

Block = tuple[int, bytes]  # the first slot, and entries from it on
NO_BLOCK: Final[Block] = (0, b"")


class IndexFile:
    """Invariants: entry n is in the file for n < `_saved`, else in `_tail`; keys ascend; `_block`
    equals the file, and is replaced, never changed: other threads may be reading it.
    """

    __slots__ = ("_block", "_disk", "_saved", "_tail", "base_offset", "path")

    ENTRY: ClassVar[Struct]

    def __init__(self, disk: Disk, path: str, base_offset: int, saved: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._saved = saved
        self._tail = bytearray()
        self._block = NO_BLOCK

    def forget_block(self) -> None:
        self._block = NO_BLOCK

    def __len__(self) -> int:
        return self._saved + len(self._tail) // self.ENTRY.size

    def raw(self, slot: int) -> tuple[int, int]:
        """The two numbers of an entry, as in the file."""
        size = self.ENTRY.size
        block_from, entries = self._block
        in_block = slot - block_from
        if slot >= self._saved:
            first, second = self.ENTRY.unpack_from(self._tail, (slot - self._saved) * size)
        elif 0 <= in_block < len(entries) // size:
            first, second = self.ENTRY.unpack_from(entries, in_block * size)
        else:
            first, second = self.ENTRY.unpack(
                self._disk.open(self.path).pread(size, slot * size).ljust(size, b"\0")
            )
        return first, second

    def _append(self, first: int, second: int) -> None:
        self._tail += self.ENTRY.pack(first, second)
        if len(self._tail) >= TAIL_BYTES:
            try:
                self.save()
            except OSError as error:
                if not is_of_the_process(error):  # without a descriptor the entry stays in memory
                    raise

    def save(self) -> None:
        """Write entries that are only in memory; then the file exists, even if it is empty."""
        file = self._disk.open(self.path, create=True)
        if self._tail:
            file.pwritev([self._tail], self._saved * self.ENTRY.size)
            self._saved += len(self._tail) // self.ENTRY.size
            self._tail = bytearray()

    def truncate(self, entries: int) -> None:
        """Keep only the first `entries` entries."""
        if entries >= self._saved:
            del self._tail[(entries - self._saved) * self.ENTRY.size :]
            return
        self._tail = bytearray()
        self.forget_block()
        self._saved = entries
        self._disk.open(self.path, create=True).truncate(entries * self.ENTRY.size)

    def reset(self) -> None:
        self._tail = bytearray()
        self.forget_block()
        self._saved = 0
        self._disk.open(self.path, create=True).truncate(0)

    def search(self, target: int, column: int = 0, *, keep: bool = False) -> int:
        """The last slot whose number in `column` is at most `target`; -1 if there is none.

        With `keep` the caller will look up the slots that follow.
        """
        if self._tail and self._number(self._tail, 0, column) <= target:
            return self._saved + self._bisect(self._tail, target, column)
        if not self._saved:
            return -1
        block = self._block
        if not self._has(block, target, column):
            block = self._read_block(block, target, column)
            if keep:
                self._block = block
        block_from, entries = block
        return block_from + self._bisect(entries, target, column)

    def _has(self, block: Block, target: int, column: int) -> bool:
        """Whether the slot that `search` looks for is in the block (or before all others)."""
        block_from, entries = block
        count = len(entries) // self.ENTRY.size
        if not count:
            return False
        if self._number(entries, 0, column) > target:
            return block_from == 0
        last = self._number(entries, count - 1, column)
        return target <= last or block_from + count >= self._saved

    def _read_block(self, known: Block, target: int, column: int) -> Block:
        size = self.ENTRY.size
        file = self._disk.open(self.path)
        warm_from = max(0, self._saved - WARM_BYTES // size)
        block = self._load(file, warm_from, self._saved - warm_from)
        if self._has(block, target, column):
            return block
        last_known = known[0] + len(known[1]) // size - 1
        if 0 <= last_known < warm_from:  # the next lookup finds its entry there, or right after it
            block = self._load(file, last_known, BLOCK_BYTES // size)
            if self._has(block, target, column):
                return block
        low, high = 0, warm_from  # the answer is in [low - 1, high)
        while (high - low) * size > BLOCK_BYTES // 2:
            middle = (low + high) // 2
            entry = file.pread(size, middle * size)
            if len(entry) == size and self._number(entry, 0, column) <= target:
                low = middle + 1
            else:
                high = middle
        return self._load(file, max(0, low - 1), BLOCK_BYTES // size)

    def _load(self, file: File, slot: int, count: int) -> Block:
        size = self.ENTRY.size
        return slot, file.pread(min(count, self._saved - slot) * size, slot * size)

    def _number(self, entries: bytes | bytearray, slot: int, column: int) -> int:
        number: int = self.ENTRY.unpack_from(entries, slot * self.ENTRY.size)[column]
        return number

    def _bisect(self, entries: bytes | bytearray, target: int, column: int) -> int:
        low, high = 0, len(entries) // self.ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if self._number(entries, middle, column) <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1
