"""From the page cache to the disk: flush, and the clean end of a log. Called by `Log`.

`flush` runs in a worker thread while the event loop's thread goes on. It notes what is written,
syncs that, and only then publishes the recovery point; what the loop did meanwhile (append,
roll, truncate, delete) must not make it wrong.
"""

import threading
from typing import TYPE_CHECKING

from odradek_broker.log.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from odradek_broker.log.segment import LogSegment

if TYPE_CHECKING:
    from odradek_broker.log.log import Log

# Guards the few lines where a flush in its thread and the loop's thread set the same fields.
publishing = threading.Lock()
# A truncation on the loop and a flush in its thread must not write the same file at once, nor
# an older state over a newer one. Rare enough for one lock for all logs.
_saving_epochs = threading.Lock()


def flush(log: "Log", now_ms: int | None) -> None:
    with log.flushing:
        flush_held(log, now_ms)


def flush_held(log: "Log", now_ms: int | None) -> None:
    """For a caller that holds `log.flushing`."""
    truncations = log.truncations
    target = log.written_offset
    unsynced = [segment for segment in log.segments if not segment.synced]
    try:
        _sync_segments(log, unsynced)
        save_epochs(log)
        if not log.dir_synced:
            log.dir_synced = True
            _sync_names(log)
    except OSError as error:
        log.dir_synced = False
        if log.removed:
            return  # its directory was renamed under our feet
        raise log.log_dir.fail(error) from error
    with publishing:
        if now_ms is not None:
            log.flushed_ms = now_ms
        if truncations != log.truncations:
            return  # other bytes may be at these offsets now
        if unsynced and unsynced[-1].sealed and not unsynced[-1].synced:
            target -= 1  # rolled meanwhile: its indexes are not synced, see Log._roll
        log.recovery_point = max(log.recovery_point, target)


def _sync_segments(log: "Log", segments: list[LogSegment]) -> None:
    for segment in segments:
        try:
            segment.sync()
        except FileNotFoundError:
            if segment in log.segments:
                raise
            # Deleted by retention or truncation while we were at it.


def _sync_names(log: "Log") -> None:
    """The names of the files, whose they are, and the directory itself."""
    disk = log.log_dir.disk
    metadata = f"{log.dir}/{PARTITION_METADATA}"
    if disk.exists(metadata):
        disk.open(metadata).fsync()
    disk.sync_dir(log.dir)
    disk.sync_dir(log.log_dir.path)


def save_epochs(log: "Log", *, sync: bool = True) -> None:
    with _saving_epochs:
        if log.epochs.dirty:
            log.epochs.dirty = False
            path = f"{log.dir}/{LEADER_EPOCH_CHECKPOINT}"
            try:
                log.log_dir.disk.write(path, log.epochs.encode(), sync=sync)
            except OSError:
                log.epochs.dirty = True
                raise


def finish(log: "Log", *, sync: bool) -> None:
    """Complete all files of a log that will not be used any more."""
    log.segments[-1].seal()
    log.take_snapshot()
    log.dir_synced = False
    if sync:
        flush(log, None)
    else:
        save_epochs(log, sync=False)
    for segment in log.segments:
        segment.release_file()
