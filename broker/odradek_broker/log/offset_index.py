"""Offset index: from an offset to a position in the segment file.

File `%020d.index`: entries of 8 bytes, `relative_offset: int32, position: int32`, big-endian,
one about every `index.interval.bytes` of log. `relative_offset` is the *last* offset of a
batch minus the segment's base offset, `position` is where that batch starts.

Example, base offset 5000: batches 5000-5009 at 0, 5010-5019 at 4200 and 5020-5029 at 9000 give
the entries (19, 4200) and (29, 9000). Offset 5022 is found from (19, 4200) by a scan.
"""

from struct import Struct
from typing import ClassVar, NamedTuple

from odradek_broker.log.index_file import IndexFile
from odradek_protocol.ids import Offset


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class OffsetIndex(IndexFile):
    __slots__ = ()

    ENTRY: ClassVar[Struct] = Struct(">ii")

    def entry(self, slot: int) -> OffsetPosition:
        relative, position = self.raw(slot)
        return OffsetPosition(self.base_offset + relative, position)

    def append(self, last_offset: Offset, position: int) -> None:
        self._append(last_offset - self.base_offset, position)

    def lookup(self, offset: Offset, *, keep: bool = False) -> OffsetPosition:
        """The last entry at or before this offset, or the start of the segment."""
        slot = self.search(offset - self.base_offset, keep=keep)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def last(self) -> OffsetPosition:
        return self.entry(len(self) - 1) if len(self) else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: Offset) -> None:
        """Forget all entries for offsets at or after this one."""
        self.truncate(self.search(offset - self.base_offset - 1) + 1)
