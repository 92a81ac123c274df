"""What the offset index and the time index have in common: a file of fixed-size entries.

Entries are appended in order of their key. The newest ones wait in memory (`_tail`) and go to
the file in groups; roll and close write the rest. A crash may lose the end of the file; a
short index only makes the scan longer, and recovery builds the index of unflushed segments
anew.

Searching: most lookups are for the end of the index (followers and consumers near the end of
the log). A plain binary search starts in the middle and so touches pages that nobody else
keeps warm. Therefore the last 8,192 bytes, the warm section, are searched first, and only if
the key is before them, the rest. Here the warm section is `_tail` plus one read of 8,192 bytes.
Example: an offset index of 262,144 entries (a 1 GB segment, 2 MB): a lookup near the end is
one read; a cold one is about 9 reads of 8 bytes and one of 4,096.
"""

from struct import Struct

from odradek_broker.runtime.disk import Disk

WARM_BYTES = 8192
# Entries kept in memory before they are written: 128 offset entries, about 512 KB of log.
TAIL_BYTES = 1024
# A cold search reads entries one by one until this many bytes are left, then all of them.
COLD_BLOCK_BYTES = 4096


class IndexFile:
    """Invariant: entry n is in the file for n < `_saved`, else in `_tail`; keys ascend."""

    __slots__ = ("_disk", "_saved", "_tail", "base_offset", "path")

    ENTRY: Struct

    def __init__(self, disk: Disk, path: str, base_offset: int, saved: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._saved = saved
        self._tail = bytearray()

    def __len__(self) -> int:
        return self._saved + len(self._tail) // self.ENTRY.size

    def raw(self, slot: int) -> tuple[int, int]:
        """The two numbers of an entry as they are in the file."""
        size = self.ENTRY.size
        if slot >= self._saved:
            first, second = self.ENTRY.unpack_from(self._tail, (slot - self._saved) * size)
        else:
            first, second = self.ENTRY.unpack(
                self._disk.open(self.path).pread(size, slot * size).ljust(size, b"\0")
            )
        return first, second

    def _append(self, first: int, second: int) -> None:
        self._tail += self.ENTRY.pack(first, second)
        if len(self._tail) >= TAIL_BYTES:
            self.save()

    def save(self) -> None:
        """Write what is only in memory; the file exists afterwards, be it empty."""
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
        self._saved = entries
        self._disk.open(self.path, create=True).truncate(entries * self.ENTRY.size)

    def reset(self) -> None:
        self._tail = bytearray()
        self._saved = 0
        self._disk.open(self.path, create=True).truncate(0)

    def search(self, target: int, column: int = 0) -> int:
        """The last slot whose number in `column` is at most `target`; -1 if there is none."""
        if self._tail and self._number(self._tail, 0, column) <= target:
            return self._saved + self._bisect(self._tail, target, column)
        if not self._saved:
            return -1
        size = self.ENTRY.size
        file = self._disk.open(self.path)
        warm_from = max(0, self._saved - WARM_BYTES // size)
        warm = file.pread((self._saved - warm_from) * size, warm_from * size)
        if len(warm) >= size and self._number(warm, 0, column) <= target:
            return warm_from + self._bisect(warm, target, column)
        low, high = 0, warm_from  # the answer is in [low - 1, high)
        while (high - low) * size > COLD_BLOCK_BYTES:
            middle = (low + high) // 2
            entry = file.pread(size, middle * size)
            if len(entry) == size and self._number(entry, 0, column) <= target:
                low = middle + 1
            else:
                high = middle
        block = file.pread((high - low) * size, low * size)
        return low + self._bisect(block, target, column)

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
