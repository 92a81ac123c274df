"""The wall clock of one process, moved by a small library that is preloaded (clock_shim.c).

The offset is in a file that the library maps, so it changes while the process runs. libfaketime
would do the same, but makes short sleeps of Python fail with EINVAL while it fakes no clock but
CLOCK_REALTIME (Debian's 0.9.10, seen with the broker's log cleaner).
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import struct
import subprocess
from pathlib import Path

from odradek_testkit.caching import cache_home

SOURCE = Path(__file__).with_name("clock_shim.c")


@functools.cache
def library() -> str:
    """The compiled library, built once per content; empty where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return ""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:8]
    target = cache_home() / f"clock-shim-{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        command = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE),
                   "-o", str(partial), "-ldl"]  # fmt: skip
        subprocess.run(command, check=True)
        partial.rename(target)
    return str(target)


class ProcessClock:
    """`environment` is for the process; `move` sets its distance from the system's clock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file.write_bytes(struct.pack("=q", 0))

    def move(self, seconds: int) -> None:
        with open(self._file, "r+b") as out:
            out.write(struct.pack("=q", seconds))

    @property
    def environment(self) -> dict[str, str]:
        found = library()
        if not found:
            return {}
        return {"LD_PRELOAD": found, "ODRADEK_CLOCK_FILE": str(self._file)}
