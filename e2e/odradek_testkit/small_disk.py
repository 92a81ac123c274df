"""A file system of a few megabytes for tests that fill it: a tmpfs, which root may mount.

with SmallDisk(tmp_path / "data", megabytes=40) as disk:
    disk.fill()            # with a file that no broker knows
    disk.make_room()       # removes that file
    disk.resize(200)       # while brokers run on it
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

MEGABYTE = 1024 * 1024


class MountRefusedError(Exception):
    """This user may not mount a tmpfs; pytest_plugin.py skips the test."""


class SmallDisk:
    """A tmpfs mounted at `path`; a context manager that unmounts it."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._megabytes = megabytes
        self._ballast = path / "ballast"

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        options = f"size={self._megabytes}m"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise MountRefusedError(f"cannot mount a tmpfs: {done.stderr.strip()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Lazily: a broker that is ended after this may still hold files open.
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    def free_bytes(self) -> int:
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        with open(self._ballast, "ab", buffering=0) as ballast:
            while (more := self.free_bytes() - leave_bytes) > 0:
                try:
                    ballast.write(bytes(min(more, MEGABYTE)))
                except OSError:  # the broker filled the rest first
                    return

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def resize(self, megabytes: int) -> None:
        options = f"remount,size={megabytes}m"
        subprocess.run(["mount", "-o", options, str(self.path)], check=True)
