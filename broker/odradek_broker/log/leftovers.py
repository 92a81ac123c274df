"""Files that a crash left in the middle of something, at the load of a partition directory.

The cleaner writes replacement segments as `.cleaned`, syncs them, renames them to `.swap`,
renames the segments that they replace to `.deleted` and then takes the suffix `.swap` off.
Wherever the crash came:

    .cleaned    may be incomplete: removed; the old segments are all still there
    .swap       complete: whatever of the old segments is left is removed, then the suffix
    .deleted    replaced or past its retention: removed
    .tmp        a checkpoint that was being written: removed

A `.swap` at or after a `.cleaned` belongs to a replacement of which not every part got its
`.swap` yet (they are renamed from the last to the first): removed too.
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
    """Finish or undo what was going on; gives the files of the directory as they are then.

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
    doomed = [*temporary, *unfinished]
    swaps = [entry for entry in swaps if entry.name not in unfinished]
    if not doomed and not swaps:
        return entries

    replaced = _replaced(names, swaps, end_offset_of_swap)
    for name in (*doomed, *replaced):
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
    """The files of the segments that the swaps stand for."""
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
