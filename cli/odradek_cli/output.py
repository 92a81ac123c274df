"""Where the commands print: tables and JSON to stdout, progress and remarks to stderr.

Progress bars show only on a terminal, so that pipes and logs stay readable.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A plain table that fits the terminal; columns named with a leading > are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width: never cut or wrap its lines
        console = Console(width=10_000)
        table.expand = False
    console.print(table, soft_wrap=not console.is_terminal)


def print_listed(
    found: Sequence[Mapping[str, object]], as_json: bool, columns: Sequence[str], empty: str
) -> None:
    """The result of a `list` command; the keys of a row are those of the JSON, in column order."""
    if as_json:
        print_json(found)
    elif not found:
        print(empty)
    else:
        print_table(columns, [tuple(one.values()) for one in found])


def remarks() -> Console:
    """A console on stderr: for people, not for scripts."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def progress_bar(*, unit: str = "records") -> Progress:
    """Count, rate and time of one piece of work; invisible unless stderr is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        console=remarks(),
        disable=not sys.stderr.isatty(),
    )


def plain(value: object) -> Any:
    """A value that JSON can hold: bytes as text, or as {"base64": …} if they are not UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KB", 0 -> "0 B"."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
