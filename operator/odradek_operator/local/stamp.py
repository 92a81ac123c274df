"""Notices that a manifest has changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from odradek_api.parse import SUFFIXES


def stamp(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Changes whenever a manifest changes."""
    found = []
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in inside:
            with contextlib.suppress(OSError):  # an editor may replace a file at any moment
                if file.suffix in SUFFIXES and file.is_file():
                    about = file.stat()
                    found.append((str(file), about.st_mtime_ns, about.st_size))
    return found
