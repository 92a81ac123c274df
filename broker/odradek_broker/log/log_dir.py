"""One entry of `log.dirs`: what its logs share, its checkpoints, and whether it still works.

A directory that fails once (an OSError while writing, reading or syncing, see `dir_failure.py`)
is offline until the broker restarts; its logs answer KAFKA_STORAGE_ERROR, those of other
directories go on. `probe` finds out about one that nobody writes to.
"""

import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

from odradek_broker.log import checkpoints
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
from odradek_protocol.ids import ZERO_UUID, Offset, TopicPartition

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
        # Called once, in the thread that found it, when the directory has failed.
        self.on_failure: Callable[[LogDir], None] = lambda _: None
        self.clean = False  # the last shutdown was
        self.previous_broker_epoch = -1  # of a clean shutdown
        self.logs: set[Log] = set()
        # Renamed to `.deleted` (or `-delete`) and to be removed at this time, oldest first.
        self.doomed: deque[tuple[int, str]] = deque()
        self._lock: Lock | None = None
        self._inode: tuple[int, int] | None = None  # as the first probe found it
        self._writing = threading.Lock()
        self._versions: dict[str, int] = {}  # of each checkpoint: the newest one made …
        self._written: dict[str, int] = {}  # … and the newest one written
        self._digests: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"LogDir({self.path}{', offline' if self.failure else ''})"

    def fail(self, cause: OSError) -> LogDirError:
        """Take the directory offline, if it is to blame; the caller raises what comes back."""
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
        """In a thread: whether the directory is still there and writable; its free space.

        Writing to a file that was deleted works, and nobody may write for hours, so this finds
        a directory that was deleted, replaced or mounted read-only under the broker.
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
        """The cluster that the directory belongs to already; None if it cannot be told."""
        try:
            identity = read_identity(self.disk, self.path)
        except OSError as error:
            self.fail(error)
            return None
        return identity.cluster_id if identity else None

    def open(self, cluster_id: str, node_id: int) -> None:
        """Create it if need be, lock it, check whose it is. LogDirConfigError, or offline."""
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

    # Checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        path = f"{self.path}/{name}"
        if not self.disk.exists(path):
            return {}
        offsets = checkpoints.parse_offsets(self.disk.read(path))
        if offsets is None:
            logger.warning("%s is damaged and ignored", path)
        return offsets or {}

    def checkpoint(
        self,
        name: str,
        offsets: Mapping[TopicPartition, Offset] | Callable[[], Mapping[TopicPartition, Offset]],
        after: Callable[[], None] = lambda: None,
    ) -> Callable[[], None]:
        """Prepare a checkpoint; call what comes back, in any thread, to write it.

        One that is overtaken by a newer one of the same name is not written any more. `offsets`
        may be a function that finds them when it is written, in that thread. `after` is called when
        it is on disk.
        """
        version = self._versions[name] = self._versions.get(name, 0) + 1

        def write() -> None:
            with self._writing:
                if self.failure is not None or version < self._written.get(name, 0):
                    return
                found = offsets() if callable(offsets) else offsets
                data = checkpoints.encode_offsets(found)
                digest = blake2b(data, digest_size=16).digest()
                if digest != self._digests.get(name):  # an idle broker does not write
                    try:
                        self.disk.write(f"{self.path}/{name}", data)
                    except OSError as error:
                        raise self.fail(error) from error
                    self._digests[name] = digest
                self._written[name] = version
                after()

        return write

    def checkpoint_recovery_points(self) -> Callable[[], None]:
        offsets = {log: max(log.recovery_point, 0) for log in self.logs}
        for log, offset in offsets.items():
            log.checkpoint_max = max(log.checkpoint_max, offset)

        def written() -> None:
            for log, offset in offsets.items():
                log.checkpointed = log.checkpoint_max = offset

        return self.checkpoint(
            checkpoints.RECOVERY_POINT,
            {log.topic_partition: offset for log, offset in offsets.items()},
            written,
        )

    def checkpoint_log_starts(self) -> Callable[[], None]:
        """Only those that the name of the first segment does not tell."""
        offsets = {
            log.topic_partition: log.log_start_offset
            for log in self.logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        return self.checkpoint(checkpoints.LOG_START_OFFSET, offsets)

    def checkpoint_high_watermarks(self) -> Callable[[], None]:
        logs = list(self.logs)  # of all that changes on the loop, the thread may use only this

        def offsets() -> Mapping[TopicPartition, Offset]:
            return {log.topic_partition: log.high_watermark for log in logs}

        return self.checkpoint(checkpoints.HIGH_WATERMARK, offsets)

    def checkpoint_cleaner_offsets(self) -> Callable[[], None]:
        """Also of logs that are not compacted any more: they have gaps (see `loading.py`)."""
        offsets = {
            log.topic_partition: log.cleaned_offset for log in self.logs if log.cleaned_offset >= 0
        }
        return self.checkpoint(checkpoints.CLEANER_OFFSET, offsets)

    # Delayed removal

    def doom(self, path: str, at_ms: int) -> None:
        self.doomed.append((at_ms, path))

    def take_doomed(self, now_ms: int) -> list[str]:
        """What is to be removed now; in the order of dooming, so one long delay holds up others."""
        due = []
        while self.doomed and self.doomed[0][0] <= now_ms:
            due.append(self.doomed.popleft()[1])
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and `-delete` directories; what is gone already is no error."""
        try:
            for path in paths:
                if not path.endswith(DELETE_DIR):
                    self.disk.remove(path)
                elif self.disk.exists(path):
                    self.disk.remove_tree(path)
        except OSError as error:
            raise self.fail(error) from error
