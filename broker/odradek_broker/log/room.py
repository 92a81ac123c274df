"""How much may still be written to a log directory before its file system is looked at again.

`odradek.log.dir.reserve.bytes` (R, never more than 5 % of the file system) divides the free space:

    free ≥ R            everybody writes
    R/2 ≤ free < R      low: producers are refused; what the broker itself writes goes on
                        (replication, group commits, transaction markers); ends at 1.25 R. A batch
                        that would take some of R is refused too, and free must then fit it
    free < R/2          full: only the metadata log and checkpoints are written; ends at 0.75 R

A broker may write a gigabyte per second, so a timer alone would come too late. Each append takes
its bytes from `left`; when that is used up the free space is looked at (one statvfs, about a
microsecond) and up to ALLOWANCE_BYTES are granted. `queued` is what was granted and is not in the
file yet, so that a loop pass with many requests does not get the same bytes twice.

Used by `log.py` at each append, on the event loop; `log_dir.py` owns it.
"""

from collections.abc import Callable
from typing import Final

from odradek_broker.log.errors import NoRoomError
from odradek_broker.runtime.disk import DiskUsage

# Others may write to the same file system meanwhile: not more than this is granted at a time.
ALLOWANCE_BYTES: Final = 8 * 1024 * 1024
# A small volume (a test, a sidecar's emptyDir) must not be all reserve.
RESERVE_MAX_SHARE: Final = 0.05
UNLIMITED: Final = 1 << 60


class Room:
    """Invariants: `full` implies `low`; `left` never counts bytes of the reserve for a producer."""

    __slots__ = (
        "_measure",
        "_path",
        "asked",
        "floor_bytes",
        "free_bytes",
        "full",
        "kept_bytes",
        "left",
        "low",
        "queued",
        "refused",
        "reserve_bytes",
        "setting",
        "total_bytes",
    )

    def __init__(self, path: str, measure: Callable[[str], DiskUsage], setting: int = 0) -> None:
        self._path = path
        self._measure = measure  # raises LogDirError if the directory is broken
        self.setting = setting
        self.reserve_bytes = 0
        self.floor_bytes = 0
        self.total_bytes = -1  # not measured yet
        self.free_bytes = -1
        self.low = False
        self.full = False
        self.left = 0 if setting else UNLIMITED
        self.kept_bytes = 0  # of the free space, whatever is appended
        self.queued = 0
        # The largest append of a producer that was refused: until it fits, others lead.
        self.asked = 0
        self.refused = 0  # appends of producers

    def admit(self, size: int, from_client: bool) -> None:
        """Take the bytes of an append. NoRoomError if it must not be made."""
        if size > self.left or self.low:
            self.look()
            available = self.free_bytes - self.queued - self.kept_bytes
            if self.setting and (size > available or (self.low and from_client)):
                if from_client:
                    self.refused += 1
                    self.low = True
                    self.asked = max(self.asked, size)
                raise NoRoomError(self._path, self.free_bytes, self.reserve_bytes)
            self.left = max(self.left, size)
        self.left -= size

    def fits(self, size: int) -> bool:
        """Whether so much may be written for a while by who frees space with it: the cleaner."""
        return not self.low or size <= self.free_bytes - self.queued - self.floor_bytes

    def look(self) -> None:
        """Measure the free space; about once a second, and when `left` is used up."""
        if self.setting:
            self.update(self._measure(self._path))

    def update(self, usage: DiskUsage) -> None:
        self.total_bytes = usage.total_bytes
        free = self.free_bytes = usage.usable_bytes
        reserve = min(self.setting, int(usage.total_bytes * RESERVE_MAX_SHARE))
        self.reserve_bytes = reserve
        self.floor_bytes = reserve // 2
        if not self.setting:
            return
        self.full = free < (reserve * 3 // 4 if self.full else self.floor_bytes)
        enough = reserve * 5 // 4 if self.low else reserve
        self.low = self.full or free < max(enough, reserve + self.asked)
        if not self.low:
            self.asked = 0
        self.kept_bytes = free if self.full else self.floor_bytes if self.low else reserve
        self.left = min(free - self.queued - self.kept_bytes, ALLOWANCE_BYTES)
