"""Copy a log to another directory of the broker while the log is in use.

Works on two logs, the source and the copy, and nothing else; `partition/moving.py` drives it:

    align(source, copy)                makes the copy a prefix of the source again
    found = next_range(source, copy)   what to read next; None if the copy is complete
    take(source, copy, data)           append what was read
    flush_copy(copy)                   makes it and its checkpoints durable; in a thread
    ready = is_complete(source, copy)  then `FutureLogs.swap` may put it in the source's place

The copy is a follower of the source: it gets the same batches with the same offsets and epochs.
When the source was truncated (it follows a leader of its own), the copy is truncated where the
leader epochs of the two diverge (KIP-101). Example: the source has epochs 1 up to offset 80 and 2
from there on, the copy has epoch 1 up to 100: the copy is truncated to 80.
"""

from odradek_broker.log.checkpoints import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from odradek_broker.log.log import Log
from odradek_broker.log.types import FileRange
from odradek_protocol.records.record_batch import HEADER_BYTES, read_header

# Read at once: small enough to be appended between two requests (1 ms), large enough for a disk.
SLICE_BYTES = 1 << 20


def append_pieces(log: Log, records: memoryview) -> None:
    """Append whole batches and write them: with one system call, unless they fill a segment."""
    if len(records) <= log.config.segment_bytes:
        log.append_as_follower(records)
    else:
        at = 0
        while at < len(records):
            end = at + read_header(records, at).size
            log.append_as_follower(records[at:end])
            at = end
    log.write_pending()


def align(source: Log, copy: Log, now_ms: int) -> None:
    """Truncate batches of the copy that the source does not have (any more)."""
    while copy.log_end_offset > copy.log_start_offset:
        latest, copy_end = copy.epochs.latest, copy.log_end_offset
        epoch, end = source.end_offset_for_epoch(min(latest, source.epochs.latest))
        if epoch == latest and copy_end <= end:
            break
        _, own_end = copy.end_offset_for_epoch(epoch)
        copy.truncate_to(max(min(end, own_end), copy.segments[0].base_offset))
        if (copy.epochs.latest, copy.log_end_offset) == (latest, copy_end):  # nothing in common
            copy.truncate_fully_and_start_at(source.log_start_offset, now_ms)
    if copy.log_end_offset > source.log_end_offset:
        copy.truncate_to(source.log_end_offset)
    if not _starts_at(copy, source) and (
        copy.log_end_offset <= source.log_start_offset
        or source.epochs.epoch_of(copy.log_end_offset - 1) != copy.epochs.latest
    ):
        # The copy ends before the epochs that the source still knows. It is unknown whether its
        # contents were truncated in the source. Kept below the log start, they would reappear after
        # a crash. After a crash the log start itself may be older than these epochs.
        copy.truncate_fully_and_start_at(source.log_start_offset, now_ms)
    copy.move_log_start(min(source.log_start_offset, copy.log_end_offset))


def _starts_at(copy: Log, source: Log) -> bool:
    """Whether the copy is empty and its next offset is the log start of the source."""
    return copy.segments[0].base_offset == copy.log_end_offset == source.log_start_offset


def next_range(source: Log, copy: Log) -> FileRange | None:
    """The range that the source has written after the end of the copy."""
    return source.read(copy.log_end_offset, SLICE_BYTES, source.written_offset)[0]


def take(source: Log, copy: Log, data: bytes, now_ms: int) -> int:
    """Append the whole batches of the range that was read; returns their bytes."""
    view = memoryview(data)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        size = read_header(view, at).size
        if at + size > len(view):
            break
        at += size
    first_offset = read_header(view).base_offset if at else copy.log_end_offset
    if first_offset < copy.log_end_offset == copy.log_start_offset:
        # The copy is empty, and the source starts in the middle of a batch (DeleteRecords).
        copy.truncate_fully_and_start_at(first_offset, now_ms)
    append_pieces(copy, view[:at])
    copy.high_watermark = min(source.high_watermark, copy.log_end_offset)
    copy.move_log_start(min(source.log_start_offset, copy.high_watermark))
    return at


def flush_copy(copy: Log) -> None:
    """Sync the files that the next start needs to continue the copy or to use it as replica."""
    copy.flush()
    copy.log_dir.checkpoints.write(RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK)


def is_complete(source: Log, copy: Log) -> bool:
    """Whether the copy has everything that is written, and synced everything that is synced."""
    return (
        copy.log_end_offset == source.log_end_offset == source.written_offset
        and copy.recovery_point >= source.recovery_point
    )
