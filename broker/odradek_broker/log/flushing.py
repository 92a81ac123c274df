"""From the page cache to the disk: flush, the recovery point, and the clean end of a log.

`Flusher.flush` runs in a worker thread while the event loop's thread continues. It notes how far is
written, syncs that, and only then publishes the recovery point. What the loop does meanwhile
(append, roll, truncate, delete) must not make the recovery point wrong:

    written_offset=30, flush begins, the loop appends up to 50   →  recovery_point=30
    written_offset=30, flush begins, the loop truncates to 20    →  recovery_point<=20, not 30
"""

import threading

from odradek_broker.log.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.state import LogState
from odradek_protocol.ids import Offset

# Guards the few lines where a flush in its thread and the loop's thread set the same fields.
_publishing = threading.Lock()
# A truncation in the loop's thread and a flush in another one must not write the same file at
# once, nor an older state over a newer one. Rare enough for one lock for all logs.
_saving_epochs = threading.Lock()


class Flusher:
    """Invariants:
    recovery_point <= written_offset; a sealed segment below it is synced
    the recovery point in the checkpoint file is at most `checkpoint_max`
    """

    __slots__ = ("_dir_synced", "_state", "checkpoint_max", "flushed_ms", "lock", "recovery_point")

    def __init__(self, state: LogState, recovery_point: Offset, checkpointed: Offset) -> None:
        self._state = state
        self.recovery_point = recovery_point  # everything below it was fsynced
        # A newer checkpoint than the one in the file may be on its way to the disk.
        self.checkpoint_max = checkpointed
        self.flushed_ms = 0  # time of the last flush
        self._dir_synced = False  # the names of all files of the log are durable
        self.lock = threading.Lock()  # one flush at a time

    def is_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush."""
        config = self._state.config
        unflushed = self._state.written_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= config.flush_messages or now_ms - self.flushed_ms >= config.flush_ms
        )

    def flush(self, now_ms: int | None) -> None:
        """fsync everything written so far and move the recovery point. Safe in a worker thread."""
        with self.lock:
            self.flush_locked(now_ms)

    def flush_locked(self, now_ms: int | None) -> None:
        """The same for a caller that holds `lock`."""
        state = self._state
        truncations = state.truncations
        target = state.written_offset
        unsynced = [segment for segment in state.segments if not segment.synced]
        try:
            self._sync_segments(unsynced)
            self.save_epochs()
            if not self._dir_synced:
                self._dir_synced = True
                self._sync_names()
        except OSError as error:
            self._dir_synced = False
            if state.removed:
                return  # the directory was renamed during the flush
            raise state.log_dir.fail(error) from error
        with _publishing:
            if now_ms is not None:
                self.flushed_ms = now_ms
            if truncations != state.truncations:
                return  # these offsets may hold other bytes now
            if unsynced and unsynced[-1].sealed and not unsynced[-1].synced:
                target -= 1  # rolled during the flush: its indexes are not synced, see `rolled`
            self.recovery_point = max(self.recovery_point, target)

    def _sync_segments(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            try:
                segment.sync()
            except FileNotFoundError:
                if segment in self._state.segments:
                    raise
                # Retention or a truncation deleted it during the flush.

    def _sync_names(self) -> None:
        """The names of the files, the topic id, and the directory itself."""
        state = self._state
        disk = state.log_dir.disk
        metadata = f"{state.dir}/{PARTITION_METADATA}"
        if disk.exists(metadata):
            disk.open(metadata).fsync()
        disk.sync_dir(state.dir)
        disk.sync_dir(state.log_dir.path)

    def save_epochs(self, *, sync: bool = True) -> None:
        """Write the leader epochs to their file if they differ from it."""
        state = self._state
        with _saving_epochs:
            epochs = state.epochs
            if epochs.dirty:
                epochs.dirty = False
                path = f"{state.dir}/{LEADER_EPOCH_CHECKPOINT}"
                try:
                    state.log_dir.disk.write(path, epochs.encode(), sync=sync)
                except OSError:
                    epochs.dirty = True
                    raise

    # Reports of the loop's thread

    def rolled(self, segments: list[LogSegment]) -> None:
        """The log continues in the last one of these segments."""
        with _publishing:
            # The indexes of the segment before it are not synced yet: recovery must read it.
            base_offset = segments[-1].base_offset
            self.recovery_point = min(self.recovery_point, base_offset - 1)
            self._state.segments = segments
            self._dir_synced = False

    def truncated(self) -> None:
        """The end of the log was cut off."""
        state = self._state
        with _publishing:
            state.truncations += 1
            self.recovery_point = min(self.recovery_point, state.log_end_offset)
            self._dir_synced = False

    def close_files(self, *, sync: bool) -> None:
        """Complete all files of a log that is not used any more; its indexes are complete."""
        self._dir_synced = False
        if sync:
            self.flush(None)
        else:
            self.save_epochs(sync=False)
        for segment in self._state.segments:
            segment.release_file()

    def mark_synced(self) -> None:
        """The caller has synced the whole file system."""
        self.recovery_point = self._state.written_offset
        for segment in self._state.segments:
            segment.synced = True
