"""One entry of `log.dirs`: what its logs share, and whether it still works.

A directory that fails once (any OSError while writing, reading or syncing) is offline until
the broker restarts; its logs answer KAFKA_STORAGE_ERROR, those of other directories go on.
"""

from collections import deque
from uuid import UUID

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_cache import FileCache
from odradek_broker.model.ids import ZERO_UUID
from odradek_broker.runtime.disk import Disk


class LogDir:
    """Invariant: `failure` is set at most once and never cleared."""

    def __init__(self, path: str, disk: Disk, files: FileCache) -> None:
        self.path = path
        self.disk = disk
        self.files = files
        self.directory_id: UUID = ZERO_UUID
        self.failure: OSError | None = None
        # Renamed to `.deleted` (or `-delete`) and to be removed at this time, oldest first.
        self.doomed: deque[tuple[int, str]] = deque()

    def __repr__(self) -> str:
        return f"LogDir({self.path}{', offline' if self.failure else ''})"

    def fail(self, cause: OSError) -> LogDirError:
        """Take the directory offline; the caller raises what comes back."""
        if self.failure is None:
            self.failure = cause
        return LogDirError(self.path, cause)

    def check(self) -> None:
        if self.failure is not None:
            raise LogDirError(self.path, self.failure)

    def doom(self, path: str, at_ms: int) -> None:
        self.doomed.append((at_ms, path))
