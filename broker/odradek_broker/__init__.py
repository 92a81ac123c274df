"""Odradek's broker: Kafka's wire protocol, storage engine and state machines in Python.

The layers and what each may import are in DESIGN.md; `broker.py` puts them together.

`make compile` makes a copy of this package whose hot path is compiled (broker/compile.py). It takes
the place of these sources as long as nothing of them is changed; ODRADEK_COMPILED=0 leaves it out,
ODRADEK_COMPILED=1 insists on it.
"""

import os
import sys
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILED = SOURCES.parents[1] / "build" / f"compiled-{sys.implementation.cache_tag}"


def compiled_is_current() -> bool:
    """Every source is there as it is here; a copy keeps size and time of what it is a copy of."""
    return COMPILED.is_dir() and _same(str(SOURCES), str(COMPILED / SOURCES.name))


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


def _choose() -> None:
    wanted = os.environ.get("ODRADEK_COMPILED", "")
    if wanted == "0":
        return
    if compiled_is_current():
        __path__.insert(0, str(COMPILED / SOURCES.name))
    elif wanted == "1":
        raise ImportError(f"ODRADEK_COMPILED=1, but {COMPILED} is not of this source: make compile")


_choose()
