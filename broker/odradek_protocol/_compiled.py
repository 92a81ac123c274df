"""Which modules of the broker's packages run: the sources, or the compiled ones of the hot path.

In a checkout `make compile` makes a copy of both packages whose hot path is compiled
(broker/compile.py). It is used instead of the sources as long as none of them has changed since.

An installed wheel and an image have the extension modules next to their sources, where Python
prefers them, and `compiled.sha256`, which names the sources that they were made of:

    5f0c…e1  odradek_broker/log/log.py

They are used as long as each of these sources has that hash (2 ms at a start). In both cases
ODRADEK_COMPILED=0 always uses the sources, and ODRADEK_COMPILED=1 fails if the compiled modules are
outdated. The `__init__.py` of each package calls `use` first.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).parents[1]
PACKAGES = ("odradek_protocol", "odradek_broker")
COMPILED = SOURCES.parent / "build" / f"compiled-{sys.implementation.cache_tag}"
MADE_OF = Path(__file__).with_name("compiled.sha256")


def use(package: str, path: list[str]) -> None:
    """Choose the compiled modules of this package if they are wanted and current."""
    wanted = os.environ.get("ODRADEK_COMPILED", "")
    if MADE_OF.exists():
        _use_installed(wanted)
        return
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


# -- installed -------------------------------------------------------------------------------------


@cache
def _use_installed(wanted: str) -> None:
    changed = "" if wanted == "0" else _changed_source()
    if changed and wanted == "1":
        raise ImportError(f"ODRADEK_COMPILED=1, but {changed} was changed: install odradek again")
    if changed or wanted == "0":
        sys.meta_path.insert(0, SourceFinder())


def _changed_source() -> str:
    """The first source that a compiled module was not made of; empty if there is none."""
    from hashlib import sha256

    for line in MADE_OF.read_text().splitlines():
        digest, _, name = line.partition("  ")
        try:
            content = (SOURCES / name).read_bytes()
        except FileNotFoundError:
            return name
        if sha256(content).hexdigest() != digest:
            return name
    return ""


class SourceFinder:
    """Finds the modules of our packages as sources only, before Python looks for extensions."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        for directory in path or ():
            finder = FileFinder(directory, (SourceFileLoader, [".py"]))
            if found := finder.find_spec(name, target):
                return found
        return None
