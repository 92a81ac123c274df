"""How much may be written to a log directory before its free space is measured again.

`odradek.log.dir.reserve.bytes` (R, never more than 5 % of the file system) divides the free space:

    free ≥ R            all appends are accepted
    R/2 ≤ free < R      low: producers are refused, the broker's own appends are accepted
                        (replication, group commits, transaction markers); ends at 1.25 R. A batch
                        that would need some of R is refused too; low then lasts until it fits
    free < R/2          full: only the metadata log and checkpoints are written; ends at 0.75 R

Example with R = 1 GB: at 0.9 GB free producers get KAFKA_STORAGE_ERROR until 1.25 GB are free.

A broker may write a gigabyte per second, so a timer alone would be too late. Each append takes
its bytes from `left`; when that is used up the free space is measured (one statvfs, about a
microsecond) and up to ALLOWANCE_BYTES are granted. `queued` is what was granted and is not in the
file yet, so that a loop pass with many requests does not get the same bytes twice.

Used by `appending.py` at each append, in the loop's thread; `log_dir.py` owns it.
"""

from collections.abc import Callable
from typing import Final

from odradek_broker.log.errors import NoRoomError
from odradek_broker.runtime.disk import DiskUsage

# Granted at a time: other processes may write to the same file system.
ALLOWANCE_BYTES: Final = 8 * 1024 * 1024
# The reserve must not be most of a small volume (a test, an emptyDir).
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
        self._measure = measure  # raises LogDirError if the directory has failed
        self.setting = setting
        self.reserve_bytes = 0
        self.floor_bytes = 0
        self.total_bytes = -1  # not measured yet
        self.free_bytes = -1
        self.low = False
        self.full = False
        self.left = 0 if setting else UNLIMITED
        self.kept_bytes = 0  # free space that stays free
        self.queued = 0
        # The largest append of a producer that was refused: `low` lasts until it fits.
        self.asked = 0
        self.refused = 0  # how many appends of producers

    def admit(self, size: int, from_client: bool) -> None:
        """Reserve the bytes of an append. NoRoomError if it is refused."""
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
        """Whether the cleaner, which frees space afterwards, may write this much."""
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
