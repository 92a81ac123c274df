"""A disk in memory that knows what a power failure loses.

Every file has the bytes that the process sees (the page cache) and those that survived the
last fsync. `crash(rng)` takes the power away: of each file's unsynced bytes a random part is
kept, torn anywhere; the rest is old content, zeros or missing.
Creations, renames and removals are journalled in order, as ext4 does: any fsync commits all of
them so far, a crash keeps a random prefix of the others. A crash of the process alone loses
nothing: just open the files again.

Faults are injected by path: `fail(prefix, errno.EIO)` makes every write, read and sync below it
raise; `capacity_bytes` bounds the sum of all files (ENOSPC, after a partial write).
"""

import errno
import os
from collections.abc import Callable, Sequence
from random import Random

from odradek_broker.runtime.disk import Buffer, DirProbe, DiskUsage, FileInfo


class _Inode:
    """Invariant: `synced` is what a crash leaves at least, except where later writes hit it."""

    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.modified_ms = 0

    def lose_power(self, rng: Random) -> None:
        """The content after the crash: the synced bytes and a part of the new ones."""
        new, old = self.data, self.synced
        if bytes(new) != old:
            shorter, longer = sorted((len(old), len(new)))
            size = rng.choice((len(old), len(new), rng.randint(shorter, longer)))
            survived = rng.choice((0, rng.randint(0, size), size))
            found = bytearray(size)  # where neither reaches: zeros
            found[: min(len(old), size)] = old[:size]
            keep = min(survived, len(new))
            found[:keep] = new[:keep]
            self.data = found
        self.synced = bytes(self.data)


class SimFile:
    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: "SimDisk", inode: _Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor")

    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check(self._path)
        return bytes(self._inode.data[position : position + length])

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._disk.check(self._path)
        data = self._inode.data
        whole = b"".join(buffers)
        room = self._disk.room_for(position + len(whole) - len(data))
        fits = len(whole) if room >= 0 else max(0, len(whole) + room)
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        data[position : position + fits] = whole[:fits]
        if fits < len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, size: int) -> None:
        self._disk.check(self._path)
        data = self._inode.data
        if size <= len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))

    def fsync(self) -> None:
        self._disk.check(self._path)
        self._inode.synced = bytes(self._inode.data)
        self._disk.commit_names()


class _SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimDisk:
    """Paths are absolute; directories exist once made."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self._files: dict[str, _Inode] = {}
        self._dirs: set[str] = {"/"}
        self._names_before: list[tuple[dict[str, _Inode], set[str]]] = []
        self._faults: dict[str, int] = {}
        self._locks: set[str] = set()

    # Faults

    def crash(self, rng: Random) -> None:
        """The power fails. Files that were open are dead; open them again."""
        if self._names_before:
            states = [*self._names_before, (self._files, self._dirs)]
            self._files, self._dirs = rng.choice(states)
            self._names_before = []
        self._files = {path: self._survivor(inode, rng) for path, inode in self._files.items()}
        self._locks.clear()

    @staticmethod
    def _survivor(inode: _Inode, rng: Random) -> _Inode:
        copy = _Inode()
        copy.data, copy.synced = bytearray(inode.data), inode.synced
        copy.lose_power(rng)
        return copy

    def fail(self, prefix: str, error: int) -> None:
        """From now on every access to paths that begin so raises this errno."""
        self._faults[prefix] = error

    def heal(self) -> None:
        self._faults.clear()

    def check(self, path: str) -> None:
        for prefix, error in self._faults.items():
            if path.startswith(prefix):
                raise OSError(error, os.strerror(error), path)

    def room_for(self, more: int) -> int:
        return self.capacity_bytes - sum(len(inode.data) for inode in self._files.values()) - more

    def commit_names(self) -> None:
        self._names_before.clear()

    def _changing_names(self, path: str) -> None:
        self.check(path)
        self._names_before.append((dict(self._files), set(self._dirs)))

    # The port

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check(path)
        inode = self._files.get(path)
        if inode is None:
            if not create or os.path.dirname(path) not in self._dirs:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._changing_names(path)
            inode = self._files[path] = _Inode()
        return SimFile(self, inode, path)

    def scan(self, directory: str) -> list[FileInfo]:
        self.check(directory)
        if directory not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        found = [
            FileInfo(os.path.basename(path), len(inode.data), False)
            for path, inode in list(self._files.items())  # logs are loaded by threads
            if os.path.dirname(path) == directory
        ]
        found += [
            FileInfo(os.path.basename(path), 0, True)
            for path in self._dirs
            if path != "/" and os.path.dirname(path) == directory
        ]
        return found

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._dirs

    def modified_ms(self, path: str) -> int:
        return self._files[path].modified_ms

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = self.open(path + ".tmp", create=True)
        temporary.truncate(0)
        temporary.pwritev([data], 0)
        if sync:
            temporary.fsync()
        self.rename(path + ".tmp", path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        self._changing_names(old)
        if old in self._files:
            self._files[new] = self._files.pop(old)
        elif old in self._dirs:
            self._files = {_moved(path, old, new): i for path, i in self._files.items()}
            self._dirs = {_moved(path, old, new) for path in self._dirs}
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)

    def remove(self, path: str) -> None:
        if path in self._files:
            self._changing_names(path)
            del self._files[path]

    def remove_tree(self, path: str) -> None:
        self._changing_names(path)
        inside = path + "/"
        self._files = {p: i for p, i in self._files.items() if not p.startswith(inside)}
        self._dirs = {p for p in self._dirs if p != path and not p.startswith(inside)}

    def make_dir(self, path: str) -> None:
        if path not in self._dirs:
            self.make_dir(os.path.dirname(path))
            self._changing_names(path)
            self._dirs.add(path)

    def sync_dir(self, path: str) -> None:
        self.check(path)
        self.commit_names()

    def sync_all(self, path: str) -> None:
        self.check(path)
        for inode in self._files.values():
            inode.synced = bytes(inode.data)
        self.commit_names()

    def usage(self, path: str) -> DiskUsage:
        self.check(path)
        return DiskUsage(self.capacity_bytes, max(0, self.room_for(0)))

    def probe(self, path: str) -> DirProbe:
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return DirProbe((0, 0), False, self.usage(path))

    def open_files_limit(self) -> int:
        return 1 << 20

    def when_files_run_out(self, release: Callable[[], None]) -> None:
        """Ignored: the simulated disk has no limit on open files."""

    def lock(self, path: str) -> _SimLock | None:
        self.open(path, create=True)
        if path in self._locks:
            return None
        self._locks.add(path)
        return _SimLock(self._locks, path)


def _moved(path: str, old: str, new: str) -> str:
    if path == old or path.startswith(old + "/"):
        return new + path[len(old) :]
    return path
