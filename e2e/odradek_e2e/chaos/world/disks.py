"""The disk of one broker: a file system of its own that can fill up, or fail.

memory    a tmpfs; `fill` shrinks it to what is in it
loop      ext4 on a loop device; `fail` shuts the file system down (EXT4_IOC_SHUTDOWN without a
          flush of the journal): every later call fails with EIO, and what was only in the page
          cache is lost, as with a power failure. After another `mount` it works again.
plain     a directory, where nothing may be mounted; no faults
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path

MEGABYTE = 1 << 20
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
SIZE_MB = 1500
LEFT_BYTES = 256 * 1024


class Disk:
    """A directory for a broker's logs."""

    def __init__(self, kind: str, place: Path, image: Path | None = None) -> None:
        self.kind = kind
        self.place = place
        self._image = image
        self.place.mkdir(parents=True, exist_ok=True)
        if kind == "loop":
            assert image is not None
            with open(image, "wb") as out:
                out.truncate(SIZE_MB * MEGABYTE)
            _run("mkfs.ext4", "-q", "-m", "0", str(image))
        self.mount()

    def mount(self) -> None:
        if self.kind == "memory":
            _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(self.place))
        elif self.kind == "loop":
            _run("mount", "-o", "loop", str(self._image), str(self.place))

    def remount(self) -> None:
        """After `fail`, when the broker's process has ended."""
        _run("umount", str(self.place))
        self.mount()

    def fill(self) -> None:
        stat = os.statvfs(self.place)
        used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        if self.kind == "memory":
            _run("mount", "-o", f"remount,size={used + LEFT_BYTES}", str(self.place))
        elif self.kind == "loop":
            free = stat.f_bavail * stat.f_frsize - LEFT_BYTES
            with open(self._ballast, "wb") as out:
                os.posix_fallocate(out.fileno(), 0, max(free, 4096))

    def make_room(self) -> None:
        if self.kind == "memory":
            _run("mount", "-o", f"remount,size={SIZE_MB}m", str(self.place))
        elif self.kind == "loop":
            self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.place / "ballast"

    def fail(self) -> None:
        """From now on every read and write fails with EIO."""
        assert self.kind == "loop", "only a file system on a device can fail"
        directory = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(directory)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
