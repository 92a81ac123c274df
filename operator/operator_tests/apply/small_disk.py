"""A tmpfs of a few megabytes in place of a directory: a disk that can be filled, and grown."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

FILLER = "filler"  # takes the room; no broker knows it


class SmallDisk:
    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self.megabytes = megabytes

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        size = f"size={self.megabytes}m,mode=0755"
        command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Lazily: a process that is just being killed may still have a file open.
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Takes all but so much; who writes there meanwhile only makes it less."""
        with open(self.path / FILLER, "ab") as file:
            if (size := self.free_bytes - leave_bytes) > 0:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)

    def empty(self) -> None:
        (self.path / FILLER).unlink(missing_ok=True)

    def grow(self, megabytes: int) -> None:
        self.megabytes = megabytes
        options = f"remount,size={megabytes}m"
        subprocess.run(["mount", "-o", options, str(self.path)], check=True)
