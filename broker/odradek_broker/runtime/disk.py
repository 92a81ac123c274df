"""Files as a port: the operations that the log layer uses, and the real disk.

The simulated disk of the tests has the same methods and knows which bytes a crash loses. Every
method raises OSError when the disk fails; then the log layer takes the log directory offline.

A `File` is closed when its last reference is gone, never explicitly: a range that waits for
sendfile keeps its file open although the segment has been deleted.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from odradek_broker.runtime import descriptors

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview

# The kernel takes at most this many buffers in one writev (UIO_MAXIOV).
IOV_MAX = 1024


class FileInfo(NamedTuple):
    """One entry of a directory, with the size that `scan` found."""

    name: str
    size: int
    is_dir: bool


class DiskUsage(NamedTuple):
    total_bytes: int
    usable_bytes: int


class DirProbe(NamedTuple):
    """The state of a directory, found without reading or writing anything in it."""

    inode: tuple[int, int]  # device and number: differs after it was deleted and created again
    read_only: bool
    usage: DiskUsage


class File(Protocol):
    def fileno(self) -> int:
        """The descriptor for sendfile; only the real disk has one."""

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after the other, from `position` on; all of them or OSError."""

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File: ...

    def scan(self, directory: str) -> list[FileInfo]:
        """All entries of a directory, in no order."""

    def exists(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the whole file: temporary file, fsync, rename, fsync of the directory.

        With `sync=False` a crash may leave the old file, the new one or an empty one.
        """

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is not an error."""

    def remove_tree(self, path: str) -> None: ...

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents; an existing one is not an error."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""

    def sync_all(self, path: str) -> None:
        """Make every file of the file system that holds this path durable, at once.

        Cheaper than one fsync per file when there are thousands of them (at shutdown).
        """

    def usage(self, path: str) -> DiskUsage: ...

    def probe(self, path: str) -> DirProbe: ...

    def open_files_limit(self) -> int:
        """How many files (and sockets) this process may have open."""

    def when_files_run_out(self, release: Callable[[], None]) -> None:
        """`release` is called when no file can be opened (EMFILE), before the next attempt."""

    def lock(self, path: str) -> Lock | None:
        """Take the exclusive lock of this file, or None if another process has it."""


class RealFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        while len(data) < length:  # one read gives at most 2 GiB, and a signal may cut it short
            more = os.pread(self._fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        if len(buffers) > IOV_MAX:
            for start in range(0, len(buffers), IOV_MAX):
                part = buffers[start : start + IOV_MAX]
                self.pwritev(part, position)
                position += sum(map(len, part))
            return
        written = os.pwritev(self._fd, buffers, position)
        expected = sum(map(len, buffers))
        if written != expected:
            self._write_rest(buffers, position, written, expected)

    def _write_rest(
        self, buffers: Sequence[Buffer], position: int, written: int, expected: int
    ) -> None:
        """The kernel wrote only a part (disk nearly full, 2 GiB limit): write the rest."""
        while written < expected:
            skip = written
            rest: list[Buffer] = []
            for buffer in buffers:
                if skip >= len(buffer):
                    skip -= len(buffer)
                else:
                    rest.append(memoryview(buffer)[skip:])
                    skip = 0
            count = os.pwritev(self._fd, rest, position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        os.fsync(self._fd)


def _usage(stat: os.statvfs_result) -> DiskUsage:
    return DiskUsage(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)


class RealLock:
    """Held by an open descriptor: released when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class RealDisk:
    def __init__(self) -> None:
        self._release: list[Callable[[], None]] = []

    def when_files_run_out(self, release: Callable[[], None]) -> None:
        self._release.append(release)

    def _retry(self, opening: Callable[[], T]) -> T:
        try:
            return opening()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        for release in self._release:
            release()
        return opening()

    def _open(self, path: str, flags: int) -> int:
        return self._retry(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(self._open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def scan(self, directory: str) -> list[FileInfo]:
        found = []
        with self._retry(lambda: os.scandir(directory)) as entries:
            for entry in entries:
                try:
                    is_dir = entry.is_dir()
                    found.append(
                        FileInfo(entry.name, 0 if is_dir else entry.stat().st_size, is_dir)
                    )
                except FileNotFoundError:
                    continue  # another thread renamed or removed it since it was listed
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        file = RealFile(self._open(path, os.O_RDONLY))
        return file.pread(file.size(), 0)

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        fd = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=False)

    def make_dir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def sync_dir(self, path: str) -> None:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), path)
        finally:
            os.close(fd)

    def usage(self, path: str) -> DiskUsage:
        return _usage(os.statvfs(path))

    def probe(self, path: str) -> DirProbe:
        stat, file_system = os.stat(path), os.statvfs(path)
        read_only = bool(file_system.f_flag & os.ST_RDONLY)
        return DirProbe((stat.st_dev, stat.st_ino), read_only, _usage(file_system))

    def open_files_limit(self) -> int:
        return descriptors.current_limit()

    def lock(self, path: str) -> RealLock | None:
        fd = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            # flock excludes other Odradek brokers, even in the same process; lockf (a POSIX lock)
            # is the lock that a Java broker takes on the same file.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return RealLock(fd)
