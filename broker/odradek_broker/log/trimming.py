"""Remove parts of a log or replace them: retention, truncation, compaction's swap of segments.

Used by `Log`, in the event loop's thread. Files that are deleted are renamed to `.deleted` at once
and removed after `file.delete.delay.ms`, so that a reader who has just found them can finish. The
next load completes a deletion that a crash has interrupted (`leftovers.py`).

Example, segments with the base offsets 0, 100, 200 and a log end of 250:

    delete_old_segments, 0 is too old   → [100, 200], the log starts at 100
    truncate_to(150)                    → [100], the log ends at 150
    truncate_fully_and_start_at(900)    → [900], empty
"""

import logging
from collections.abc import Sequence

from odradek_broker.log.appending import Appender
from odradek_broker.log.checkpoints import CLEANER_OFFSET, LOG_START_OFFSET, RECOVERY_POINT
from odradek_broker.log.file_names import (
    CLEANED,
    DELETED,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    parse_file_name,
)
from odradek_broker.log.flushing import Flusher
from odradek_broker.log.producer_replay import restore_producer_state, snapshot_path
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.log.retention import SegmentAge, deletable_count
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.state import LogState
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset

logger = logging.getLogger(__name__)


class Trimmer:
    __slots__ = ("_appender", "_flusher", "_state")

    def __init__(self, state: LogState, appender: Appender, flusher: Flusher) -> None:
        self._state = state
        self._appender = appender
        self._flusher = flusher

    # From the start

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply `retention.ms`, `retention.bytes` and the log start; returns how many went."""
        with self._state.using_files():
            return self._delete_old_segments(now_ms)

    def _delete_old_segments(self, now_ms: int) -> int:
        state = self._state
        ages = [
            SegmentAge(end_offset, segment.size, segment.retention_timestamp)
            for segment, end_offset in zip(state.segments, state.end_offsets(), strict=True)
        ]
        count, reason = deletable_count(
            ages,
            state.config,
            log_start_offset=state.log_start_offset,
            high_watermark=state.high_watermark,
            now_ms=now_ms,
        )
        if count == 0:
            return 0
        if count == len(state.segments):
            self._appender.roll(now_ms)
        deleted, kept = state.segments[:count], state.segments[count:]
        logger.info("%s: deleting %d segments because of %s", state.dir, count, reason)
        state.segments = kept
        state.move_log_start(max(state.log_start_offset, kept[0].base_offset))
        self._delete_later(deleted, now_ms)
        return count

    def advance_log_start_offset(self, offset: Offset) -> None:
        """See `Log.advance_log_start_offset`."""
        state = self._state
        if offset > state.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{state.topic_partition}: cannot delete up to {offset}, "
                f"the high watermark is {state.high_watermark}",
            )
        state.move_log_start(offset)

    def _delete_later(self, segments: Sequence[LogSegment], now_ms: int) -> None:
        """Rename now, remove later; with the producer snapshots of their base offsets."""
        state = self._state
        disk = state.log_dir.disk
        due_ms = now_ms + state.config.file_delete_delay_ms
        kept = {segment.base_offset for segment in state.segments}
        for segment in segments:
            segment.rename(DELETED)
            segment.release_file()
            paths = [segment.path(kind) for kind in SEGMENT_FILES]
            snapshot = snapshot_path(state.dir, segment.base_offset)
            if segment.base_offset not in kept and disk.exists(snapshot):
                disk.rename(snapshot, snapshot + DELETED)
                paths.append(snapshot + DELETED)
            for path in paths:
                state.log_dir.remove_later(path, due_ms)

    # From the end

    def truncate_to(self, offset: Offset) -> None:
        """See `Log.truncate_to`."""
        state = self._state
        self._appender.write_pending()
        if offset >= state.log_end_offset:
            # A leader that wrote nothing began an epoch here, and another leader followed it.
            state.epochs.truncate_from_end(state.log_end_offset)
            return
        if offset < state.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, 0)
            return
        with state.using_files(changing=True):
            self._truncate(offset)
            if state.log_end_offset < state.log_start_offset:
                self._truncate_fully(state.log_start_offset, 0)
        self._after_truncation()

    def truncate_fully_and_start_at(self, offset: Offset, now_ms: int) -> None:
        """See `Log.truncate_fully_and_start_at`."""
        self._appender.write_pending()
        with self._state.using_files(changing=True):
            self._truncate_fully(offset, now_ms)
        self._after_truncation()

    def _truncate(self, offset: Offset) -> None:
        """Drop everything from `offset` on, durably. The caller made sure that it is in the log."""
        state = self._state
        dropped = [segment for segment in state.segments[1:] if segment.base_offset > offset]
        kept = state.segments[: len(state.segments) - len(dropped)]
        active = kept[-1]
        active.sealed = active.synced = False
        state.segments = kept
        disk = state.log_dir.disk
        for snapshot in self._snapshot_offsets():
            if snapshot > offset:  # it covers batches that are dropped
                disk.remove(snapshot_path(state.dir, snapshot))
        for segment in reversed(dropped):  # the last one first: a crash leaves no hole
            segment.remove()
        disk.sync_dir(state.dir)
        end = active.truncate_to(offset)
        state.log_end_offset = state.written_offset = end
        state.high_watermark = min(state.high_watermark, end)
        state.epochs.truncate_from_end(end)
        if state.producers.entries:
            snapshots = self._snapshot_offsets()
            state.producers = restore_producer_state(
                disk, state.dir, state.segments, snapshots, end
            )
        else:
            state.producers = ProducerState(end)
        self._flusher.save_epochs()

    def _truncate_fully(self, offset: Offset, now_ms: int) -> None:
        """Drop everything; the log continues, empty, at `offset`."""
        state = self._state
        disk = state.log_dir.disk
        for segment in reversed(state.segments):
            segment.remove()
        for snapshot in self._snapshot_offsets():
            disk.remove(snapshot_path(state.dir, snapshot))
        segment = LogSegment(state.log_dir.files, state.dir, offset, created_ms=now_ms)
        segment.create()
        disk.sync_dir(state.dir)
        state.segments = [segment]
        state.log_start_offset = state.log_end_offset = state.written_offset = offset
        state.high_watermark = offset
        state.epochs.clear()
        state.producers = ProducerState(offset)
        self._flusher.save_epochs()

    def _snapshot_offsets(self) -> list[Offset]:
        state = self._state
        parsed = (parse_file_name(entry.name) for entry in state.log_dir.disk.scan(state.dir))
        return [name[0] for name in parsed if name is not None and name[1:] == (SNAPSHOT, "")]

    def _after_truncation(self) -> None:
        state, flusher = self._state, self._flusher
        state.changed = True
        flusher.truncated()
        checkpoints = state.log_dir.checkpoints
        if flusher.checkpoint_max > flusher.recovery_point:
            # New bytes will be written where old, synced ones were. Recovery after a crash must
            # check them, so the file must not say that they are synced.
            checkpoints.write(RECOVERY_POINT, LOG_START_OFFSET)
        if state.cleaned_offset > state.log_end_offset:
            # Records that are written there later are not compacted.
            state.cleaned_offset = state.log_end_offset
            checkpoints.write(CLEANER_OFFSET)

    # Compaction

    def new_cleaned_segment(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """See `Log.new_cleaned_segment`."""
        state = self._state
        files = state.log_dir.files
        segment = LogSegment(files, state.dir, base_offset, created_ms=now_ms, suffix=CLEANED)
        segment.remove()
        segment.create()
        return segment

    def replace_segments(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], now_ms: int
    ) -> bool:
        """See `Log.replace_segments`.

        `new` are sealed, synced and have the suffix `.cleaned`. They are renamed to `.swap` from
        the last to the first. After a crash before the first of these renames the next load keeps
        the old segments, after it the new ones. File systems keep the order of renames, so the
        fsync of the directory is left to the cleaner's thread.
        """
        with self._state.using_files(changing=True):
            return self._replace(old, new, now_ms)

    def _replace(self, old: Sequence[LogSegment], new: Sequence[LogSegment], now_ms: int) -> bool:
        state = self._state
        segments = state.segments
        start = next((at for at, segment in enumerate(segments) if segment is old[0]), None)
        if start is None or list(old) != segments[start : start + len(old)]:
            for segment in new:
                segment.remove()
            return False
        for segment in reversed(new):
            segment.rename(SWAP)
        state.segments = [*segments[:start], *new, *segments[start + len(old) :]]
        self._delete_later(old, now_ms)
        for segment in new:
            segment.rename("")
        return True
