"""Transaction index: which transactions of a segment were aborted.

File `%020d.txnindex`, exists only if a transaction was aborted in this segment. Entries of 34
bytes, big-endian: `version: int16 (0), producer_id: int64, first_offset: int64,
last_offset: int64, last_stable_offset: int64`. `last_offset` is that of the abort marker and
ascends; `last_stable_offset` is its value right after the marker: no later entry concerns offsets
below it.

Example: producer 7 wrote from offset 100 on and its abort marker is at 120, while producer 9
has an open transaction since 110: the entry is (0, 7, 100, 120, 110).
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from odradek_broker.log.producer_state import CompletedTxn
from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import Offset

ENTRY = Struct(">hqqqq")
VERSION = 0
CHUNK = 120  # entries of one read: a page


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset

    @classmethod
    def of(cls, completed: CompletedTxn) -> "AbortedTxn":
        return cls(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            completed.last_stable_offset,
        )


class TxnIndex:
    __slots__ = ("_disk", "_entries", "path")

    def __init__(self, disk: Disk, path: str, size: int) -> None:
        self._disk = disk
        self.path = path
        self._entries = size // ENTRY.size

    def __len__(self) -> int:
        return self._entries

    def append(self, aborted: AbortedTxn) -> None:
        file = self._disk.open(self.path, create=True)
        file.pwritev([ENTRY.pack(VERSION, *aborted)], self._entries * ENTRY.size)
        self._entries += 1

    def read(self) -> list[AbortedTxn]:
        if not self._entries:
            return []
        return parse(self._disk.open(self.path).pread(self._entries * ENTRY.size, 0))

    def since(self, offset: Offset) -> Iterator[AbortedTxn]:
        """The transactions whose marker is at or after this offset, in order."""
        if not self._entries:
            return
        file = self._disk.open(self.path)
        low, high = 0, self._entries
        while high - low > CHUNK:
            middle = (low + high) // 2
            (entry,) = parse(file.pread(ENTRY.size, middle * ENTRY.size))
            if entry.last_offset < offset:
                low = middle + 1
            else:
                high = middle
        for start in range(low, self._entries, CHUNK):
            count = min(CHUNK, self._entries - start)
            for entry in parse(file.pread(count * ENTRY.size, start * ENTRY.size)):
                if entry.last_offset >= offset:
                    yield entry

    def truncate_to(self, offset: Offset) -> None:
        """Forget the transactions whose marker is at or after this offset."""
        keep = sum(1 for aborted in self.read() if aborted.last_offset < offset)
        if keep < self._entries:
            self._disk.open(self.path).truncate(keep * ENTRY.size)
            self._entries = keep


def parse(data: bytes) -> list[AbortedTxn]:
    whole = len(data) - len(data) % ENTRY.size
    return [AbortedTxn(*entry[1:]) for entry in ENTRY.iter_unpack(data[:whole])]
