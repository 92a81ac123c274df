"""Bounds how many segment files are open at once, whatever the number of partitions.

A segment opens its file when it is first read or written and registers it here. When more
than `capacity` are open, segments that were not used since the last check release their file
(second chance: one flag per use, no list to reorder on the hot path). A file that is still
referenced, for instance by a range that is being sent, closes with the last reference. Example with
a capacity of 2: a, b are open and only b was used; opening c releases a.
"""

from collections import deque
from typing import Protocol

from odradek_broker.runtime.disk import Disk, File


class OpensFile(Protocol):
    used: bool  # set by the owner at each use, cleared here

    def release_file(self) -> None: ...


class FileCache:
    """Invariant: every owner with an open file is in `_owners` (so may be others)."""

    def __init__(self, disk: Disk, capacity: int) -> None:
        self.disk = disk
        self.capacity = capacity
        self._owners: deque[OpensFile] = deque()
        disk.when_files_run_out(self._release_half)

    def open(self, owner: OpensFile, path: str, *, create: bool) -> File:
        self._make_room(self.capacity)
        file = self.disk.open(path, create=create)
        self._owners.append(owner)
        return file

    def _release_half(self) -> None:
        self._make_room(len(self._owners) // 2)

    def _make_room(self, capacity: int) -> None:
        for _ in range(2 * len(self._owners)):
            if len(self._owners) < capacity:
                return
            owner = self._owners.popleft()
            if owner.used:
                owner.used = False
                self._owners.append(owner)
            else:
                owner.release_file()
