"""One entry of `log.dirs`: what its logs share, its lock and identity, and whether it works.

A directory that fails once (an OSError while writing, reading or syncing, see `dir_failure.py`)
is offline until the broker restarts. Its logs answer KAFKA_STORAGE_ERROR; the logs of other
directories stay available. `probe` detects the failure of a directory that is not being written to.
"""

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from odradek_broker.log.dir_checkpoints import DirCheckpoints
from odradek_broker.log.dir_failure import FailureKind, is_of_the_process, kind_of
from odradek_broker.log.dir_identity import (
    LOCK,
    META_PROPERTIES,
    LogDirConfigError,
    claim_identity,
    put_clean_shutdown_mark,
    read_identity,
    take_clean_shutdown_mark,
)
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.file_names import DELETE_DIR
from odradek_broker.log.room import Room
from odradek_broker.runtime.disk import Disk, DiskUsage, Lock
from odradek_protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from odradek_broker.log.log import Log

logger = logging.getLogger(__name__)


class LogDir:
    """Invariant: `failure` is set at most once and never cleared."""

    def __init__(self, path: str, disk: Disk, files: FileCache, reserve_bytes: int = 0) -> None:
        self.path = path
        self.disk = disk
        self.files = files
        self.room = Room(path, self._measure, reserve_bytes)
        self.directory_id: UUID = ZERO_UUID
        self.failure: OSError | None = None
        # Called once when the directory fails, in the thread that noticed it.
        self.on_failure: Callable[[LogDir], None] = lambda _: None
        self.clean = False  # whether the last shutdown was clean …
        self.previous_broker_epoch = -1  # … and in which broker epoch it was
        self.logs: set[Log] = set()
        self.checkpoints = DirCheckpoints(self)
        # (time, path): renamed to `.deleted` or `-delete`, to be removed at this time.
        self._removals: deque[tuple[int, str]] = deque()
        self._lock: Lock | None = None
        self._inode: tuple[int, int] | None = None  # at the first probe

    def __repr__(self) -> str:
        return f"LogDir({self.path}{', offline' if self.failure else ''})"

    def fail(self, cause: OSError) -> LogDirError:
        """Take the directory offline if the error is its own; the caller raises the result."""
        if is_of_the_process(cause):
            return LogDirError(self.path, cause, offline=False)
        if self.failure is None:
            self.failure = cause
            logger.error("log directory %s is offline: %s", self.path, cause)
            self.on_failure(self)
        return LogDirError(self.path, cause)

    @property
    def failure_kind(self) -> FailureKind | None:
        return None if self.failure is None else kind_of(self.failure)

    def _measure(self, path: str) -> DiskUsage:
        try:
            return self.disk.usage(path)
        except OSError as error:
            raise self.fail(error) from error

    def probe(self) -> DiskUsage | None:
        """Check that the directory exists and is writable; its free space. May run in a thread.

        Writes to a deleted file succeed, and an idle broker does not write for hours. So only
        this notices a directory that was deleted, replaced or remounted read-only.
        """
        if self.failure is not None:
            return None
        try:
            found = self.disk.probe(self.path)
            if self._inode is None:
                self._inode = found.inode
            if found.inode != self._inode or not self.disk.exists(f"{self.path}/{META_PROPERTIES}"):
                raise FileNotFoundError(
                    errno.ENOENT, "the directory was deleted or replaced", self.path
                )
            if found.read_only:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.path)
        except OSError as error:
            self.fail(error)
            return None
        return found.usage

    def check(self) -> None:
        if self.failure is not None:
            raise LogDirError(self.path, self.failure)

    def known_cluster_id(self) -> str | None:
        """The cluster that the directory belongs to; None if it is new or cannot be read."""
        try:
            identity = read_identity(self.disk, self.path)
        except OSError as error:
            self.fail(error)
            return None
        return identity.cluster_id if identity else None

    def open(self, cluster_id: str, node_id: int) -> None:
        """Create it if missing, lock it, check which node and cluster it belongs to.

        LogDirConfigError if it may not be used; if it cannot be read it goes offline.
        """
        if self.failure is not None:
            return
        try:
            self.disk.make_dir(self.path)
            self._lock = self.disk.lock(f"{self.path}/{LOCK}")
            if self._lock is None:
                raise LogDirConfigError(
                    f"log.dirs: {self.path} is locked: another broker is using this directory"
                )
            self.directory_id = claim_identity(
                self.disk, self.path, cluster_id, node_id
            ).directory_id
            epoch = take_clean_shutdown_mark(self.disk, self.path)
            self.clean = epoch is not None
            self.previous_broker_epoch = -1 if epoch is None else epoch
        except OSError as error:
            self.fail(error)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        try:
            if clean and self.failure is None:
                put_clean_shutdown_mark(self.disk, self.path, broker_epoch)
        except OSError as error:
            self.fail(error)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Delayed removal

    def remove_later(self, path: str, at_ms: int) -> None:
        self._removals.append((at_ms, path))

    def take_due_removals(self, now_ms: int) -> list[str]:
        """The paths to remove now, in the order of `remove_later`: a long delay holds up others."""
        due = []
        while self._removals and self._removals[0][0] <= now_ms:
            due.append(self._removals.popleft()[1])
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and `-delete` directories; a missing one is no error."""
        try:
            for path in paths:
                if not path.endswith(DELETE_DIR):
                    self.disk.remove(path)
                elif self.disk.exists(path):
                    self.disk.remove_tree(path)
        except OSError as error:
            raise self.fail(error) from error
