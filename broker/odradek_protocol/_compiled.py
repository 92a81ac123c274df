"""Which copy of the broker's packages runs: the sources, or the one whose hot path is compiled.

`make compile` makes a copy of both packages whose hot path is compiled (broker/compile.py). It is
used instead of the sources as long as none of them has changed since. ODRADEK_COMPILED=0 always
uses the sources; ODRADEK_COMPILED=1 fails if the copy is outdated. The `__init__.py` of each
package calls `use` first.
"""

import os
import sys
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[1]
PACKAGES = ("odradek_protocol", "odradek_broker")
COMPILED = SOURCES.parent / "build" / f"compiled-{sys.implementation.cache_tag}"


def use(package: str, path: list[str]) -> None:
    """Put the compiled copy of this package before its sources, if it is wanted and current."""
    wanted = os.environ.get("ODRADEK_COMPILED", "")
    if wanted == "0":
        return
    if is_current():
        path.insert(0, str(COMPILED / package))
    elif wanted == "1":
        raise ImportError(f"ODRADEK_COMPILED=1, but {COMPILED} is outdated: run `make compile`")


@cache
def is_current() -> bool:
    """Whether every source has an equal copy: a copy keeps size and time of its original."""
    return COMPILED.is_dir() and all(
        _same(str(SOURCES / package), str(COMPILED / package)) for package in PACKAGES
    )


def _same(sources: str, copies: str) -> bool:
    for entry in os.scandir(sources):
        copy = f"{copies}/{entry.name}"
        if entry.name.endswith(".py"):
            here = entry.stat()
            try:
                there = os.stat(copy)
            except FileNotFoundError:
                return False
            if (here.st_mtime_ns, here.st_size) != (there.st_mtime_ns, there.st_size):
                return False
        elif entry.is_dir() and entry.name != "__pycache__" and not _same(entry.path, copy):
            return False
    return True
