"""Take parts of a log away, or put others in their place. Called by `Log`, in the loop's thread.

Files that go are renamed to `.deleted` at once and removed after `file.delete.delay.ms`, so
that a reader who just found them can finish. A crash in between is finished at the next load
(`leftovers.py`).
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek_broker.log.file_names import (
    DELETED,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    parse_file_name,
)
from odradek_broker.log.flushing import save_epochs
from odradek_broker.log.producer_replay import restore_producer_state, snapshot_path
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.log.retention import SegmentAge, deletable_count
from odradek_broker.log.segment import LogSegment
from odradek_protocol.ids import Offset

if TYPE_CHECKING:
    from odradek_broker.log.log import Log

logger = logging.getLogger(__name__)


def delete_old_segments(log: "Log", now_ms: int) -> int:
    """Apply retention; gives the number of segments that went."""
    ages = [
        SegmentAge(end_offset, segment.size, segment.retention_timestamp)
        for segment, end_offset in zip(log.segments, log.end_offsets(), strict=True)
    ]
    count, reason = deletable_count(
        ages,
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    if count == 0:
        return 0
    if count == len(log.segments):
        log.roll(now_ms)
    doomed, kept = log.segments[:count], log.segments[count:]
    logger.info("%s: deleting %d segments because of %s", log.dir, count, reason)
    log.segments = kept
    move_log_start(log, max(log.log_start_offset, kept[0].base_offset))
    doom_segments(log, doomed, now_ms)
    return count


def move_log_start(log: "Log", offset: Offset) -> None:
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        log.producers.forget_replicated(offset)


def doom_segments(log: "Log", segments: Sequence[LogSegment], now_ms: int) -> None:
    """Rename now, remove later; with the producer snapshots of their base offsets."""
    disk = log.log_dir.disk
    due_ms = now_ms + log.config.file_delete_delay_ms
    kept = {segment.base_offset for segment in log.segments}
    for segment in segments:
        segment.rename(DELETED)
        segment.release_file()
        paths = [segment.path(kind) for kind in SEGMENT_FILES]
        snapshot = snapshot_path(log.dir, segment.base_offset)
        if segment.base_offset not in kept and disk.exists(snapshot):
            disk.rename(snapshot, snapshot + DELETED)
            paths.append(snapshot + DELETED)
        for path in paths:
            log.log_dir.doom(path, due_ms)


def truncate(log: "Log", offset: Offset) -> None:
    """Drop everything from `offset` on, durably. The caller made sure that it is in the log."""
    doomed = [segment for segment in log.segments[1:] if segment.base_offset > offset]
    kept = log.segments[: len(log.segments) - len(doomed)]
    active = kept[-1]
    active.sealed = active.synced = False
    log.segments = kept
    disk = log.log_dir.disk
    snapshots = [snapshot for snapshot in snapshot_offsets(log) if snapshot > offset]
    for snapshot in snapshots:  # of a history that is no more
        disk.remove(snapshot_path(log.dir, snapshot))
    for segment in reversed(doomed):  # the last one first: a crash leaves no hole
        segment.remove()
    disk.sync_dir(log.dir)
    end = active.truncate_to(offset)
    log.log_end_offset = log.written_offset = end
    log.high_watermark = min(log.high_watermark, end)
    log.epochs.truncate_from_end(end)
    if log.producers.entries:
        log.producers = restore_producer_state(
            disk, log.dir, log.segments, snapshot_offsets(log), end
        )
    else:
        log.producers = ProducerState(end)
    save_epochs(log)


def truncate_fully(log: "Log", offset: Offset, now_ms: int) -> None:
    """Drop everything; the log goes on, empty, at `offset`."""
    disk = log.log_dir.disk
    for segment in reversed(log.segments):
        segment.remove()
    for snapshot in snapshot_offsets(log):
        disk.remove(snapshot_path(log.dir, snapshot))
    segment = LogSegment(log.log_dir.files, log.dir, offset, created_ms=now_ms)
    segment.create()
    disk.sync_dir(log.dir)
    log.segments = [segment]
    log.log_start_offset = log.log_end_offset = log.written_offset = log.high_watermark = offset
    log.epochs.clear()
    log.producers = ProducerState(offset)
    save_epochs(log)


def snapshot_offsets(log: "Log") -> list[Offset]:
    parsed = (parse_file_name(entry.name) for entry in log.log_dir.disk.scan(log.dir))
    return [name[0] for name in parsed if name is not None and name[1:] == (SNAPSHOT, "")]


def replace(log: "Log", old: Sequence[LogSegment], new: Sequence[LogSegment], now_ms: int) -> bool:
    """Put cleaned segments in the place of old ones; False if those are gone meanwhile.

    `new` are sealed, synced and have the suffix `.cleaned`. From the first `.swap` on (they
    are renamed from the last to the first) a crash leads forward, before it back. File systems
    keep the order of renames, so the fsync of the directory is left to the cleaner's thread.
    """
    segments = log.segments
    start = next((at for at, segment in enumerate(segments) if segment is old[0]), None)
    if start is None or list(old) != segments[start : start + len(old)]:
        for segment in new:
            segment.remove()
        return False
    for segment in reversed(new):
        segment.rename(SWAP)
    log.segments = [*segments[:start], *new, *segments[start + len(old) :]]
    doom_segments(log, old, now_ms)
    for segment in new:
        segment.rename("")
    return True
