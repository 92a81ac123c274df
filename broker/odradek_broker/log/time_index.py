"""Time index: from a timestamp to an offset.

File `%020d.timeindex`: entries of 12 bytes, `timestamp: int64, relative_offset: int32`,
big-endian. An entry says: up to here, `timestamp` is the largest one of this segment, and it
is in the batch that ends at this offset. Both columns ascend, so batches out of time order
make no entries. Roll and close add a last entry with the segment's largest timestamp, which
retention by time reads.

Example, base offset 5000: the entry (1700000000123, 19) says that no record before offset 5020
has a larger timestamp than 1700000000123.
"""

from struct import Struct
from typing import ClassVar, NamedTuple

from odradek_broker.log.index_file import IndexFile
from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import Offset

NO_TIMESTAMP = -1


class TimeEntry(NamedTuple):
    timestamp: int
    offset: Offset


class TimeIndex(IndexFile):
    __slots__ = ("_last_timestamp",)

    ENTRY: ClassVar[Struct] = Struct(">qi")

    def __init__(self, disk: Disk, path: str, base_offset: int, saved: int) -> None:
        super().__init__(disk, path, base_offset, saved)
        self._last_timestamp = self.last().timestamp

    def entry(self, slot: int) -> TimeEntry:
        timestamp, relative = self.raw(slot)
        return TimeEntry(timestamp, self.base_offset + relative)

    def append(self, timestamp: int, offset: Offset) -> None:
        """Does nothing unless the timestamp is larger than that of the last entry."""
        if timestamp > self._last_timestamp:
            self._append(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp

    def lookup(self, timestamp: int) -> TimeEntry:
        """The last entry at or before this timestamp, or the start of the segment."""
        slot = self.search(timestamp)
        return TimeEntry(NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry(slot)

    def last(self) -> TimeEntry:
        if not len(self):
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        return self.entry(len(self) - 1)

    def truncate_to(self, offset: Offset) -> None:
        """Forget all entries for offsets at or after this one."""
        self.truncate(self.search(offset - self.base_offset - 1, column=1) + 1)
        self._last_timestamp = self.last().timestamp

    def reset(self) -> None:
        super().reset()
        self._last_timestamp = NO_TIMESTAMP
