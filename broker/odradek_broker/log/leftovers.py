"""Complete or undo operations that a crash interrupted, when a partition's directory is loaded.

The cleaner writes replacement segments as `.cleaned`, syncs them, renames them to `.swap`,
renames the segments that they replace to `.deleted` and then removes the suffix `.swap`.
Depending on where the crash came:

    .cleaned    may be incomplete: removed; the old segments are all still there
    .swap       complete: what is left of the old segments is removed, then the suffix
    .deleted    replaced or past its retention: removed
    .tmp        a checkpoint that was being written: removed

Segments are renamed to `.swap` from the last to the first. So a `.swap` at or after a `.cleaned`
belongs to a replacement that is not renamed completely: it is removed too. Example: 100.cleaned and
200.swap are removed; 100.swap and 200.swap replace all segments from 100 on.
"""

from collections.abc import Callable, Iterable

from odradek_broker.log.file_names import (
    CLEANED,
    DELETED,
    LOG,
    SWAP,
    TEMPORARY,
    parse_file_name,
)
from odradek_broker.runtime.disk import Disk, FileInfo
from odradek_protocol.ids import Offset


def clear_leftovers(
    disk: Disk, directory: str, end_offset_of_swap: Callable[[Offset, int], Offset]
) -> list[FileInfo]:
    """Complete or undo it; returns the files of the directory afterwards.

    `end_offset_of_swap(base_offset, size)` reads a `.log.swap` up to its last batch.
    """
    entries = disk.scan(directory)
    names = {entry.name for entry in entries}
    temporary = [
        name for name in names if name.endswith((DELETED, TEMPORARY)) or _suffix(name) == CLEANED
    ]
    cleaned_from = min(
        (_offset(name) for name in temporary if _suffix(name) == CLEANED), default=-1
    )
    swaps = [entry for entry in entries if _suffix(entry.name) == SWAP]
    unfinished = [s.name for s in swaps if 0 <= cleaned_from <= _offset(s.name)]
    removed = [*temporary, *unfinished]
    swaps = [entry for entry in swaps if entry.name not in unfinished]
    if not removed and not swaps:
        return entries

    replaced = _replaced(names, swaps, end_offset_of_swap)
    for name in (*removed, *replaced):
        disk.remove(f"{directory}/{name}")
    for entry in swaps:
        disk.rename(f"{directory}/{entry.name}", f"{directory}/{entry.name.removesuffix(SWAP)}")
    disk.sync_dir(directory)
    return disk.scan(directory)


def _replaced(
    names: Iterable[str],
    swaps: list[FileInfo],
    end_offset_of_swap: Callable[[Offset, int], Offset],
) -> list[str]:
    """The files of the segments that the swaps replace."""
    logs = [entry for entry in swaps if entry.name.endswith(LOG + SWAP)]
    if not logs:
        return []
    first = min(_offset(entry.name) for entry in logs)
    end = max(end_offset_of_swap(_offset(entry.name), entry.size) for entry in logs)
    return [name for name in names if _suffix(name) == "" and first <= _offset(name) < end]


def _suffix(name: str) -> str | None:
    parsed = parse_file_name(name)
    return parsed[2] if parsed else None


def _offset(name: str) -> Offset:
    parsed = parse_file_name(name)
    assert parsed is not None
    return parsed[0]
