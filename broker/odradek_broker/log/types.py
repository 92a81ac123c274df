"""Types that the log exchanges with its callers (partition/, handlers/, network/).

Example: an append of 3 records to an empty log returns `AppendInfo(0, 2, -1, False)`.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from odradek_protocol.ids import LeaderEpoch, Offset


class HasFileno(Protocol):
    def fileno(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a segment file that go to a socket with sendfile, never through Python.

    It holds the file object itself: a segment that is deleted or evicted from the cache of
    open files stays readable until the last range on it was sent.
    """

    file: HasFileno
    position: int
    length: int


class AppendInfo:
    """The outcome of one append (all batches of one partition in one request)."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time_ms")

    def __init__(
        self, first_offset: Offset, last_offset: Offset, log_append_time_ms: int, duplicate: bool
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime
        # The idempotent producer sent it before; the offsets are those of the first time.
        self.duplicate = duplicate


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch  # -1 if unknown


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: Offset
