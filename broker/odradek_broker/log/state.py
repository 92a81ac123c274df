"""The state that the parts of one log share: segments, offsets, leader epochs and producers.

`Log` creates one `LogState` and hands it to the parts that work on it, so that each of them changes
only what it is there for:

    appending.py  Appender   assigns offsets, queues batches, writes them, rolls to a new segment
    reading.py    LogReader  finds the bytes and offsets that a request asks for; changes nothing
    flushing.py   Flusher    fsync, the recovery point, the clean end of a log
    trimming.py   Trimmer    retention, truncation, the swap of compacted segments

Example: 3 batches of 10 records each were written, a fourth is queued, 2 replicas have 2 of them:
`log_start_offset=0 high_watermark=20 written_offset=30 log_end_offset=40`.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.log.room import Room
from odradek_broker.log.segment import LogSegment
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The content of a log's directory after loading (`loading.py`), recovered if needed."""

    segments: list[LogSegment]
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset  # everything below it was fsynced
    checkpointed: Offset  # the recovery point in the checkpoint file
    epochs: LeaderEpochs
    producers: ProducerState
    topic_id: UUID


class LogState:
    """Invariants (`Log.validate` checks them in tests):
    log_start_offset, high_watermark <= written_offset <= log_end_offset
    segments ascend by base offset; the last one is active, the others are sealed
    `segments` is replaced, never changed in place: other threads may be reading the old list
    """

    __slots__ = (
        "changed",
        "cleaned_offset",
        "config",
        "dir",
        "epochs",
        "high_watermark",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "removed",
        "room",
        "segments",
        "topic_partition",
        "truncations",
        "written_offset",
    )

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        self.log_dir = log_dir
        self.room: Room = log_dir.room
        self.topic_partition = topic_partition
        self.dir = directory
        self.config = config
        self.segments = loaded.segments
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset  # counts queued batches
        self.written_offset = loaded.log_end_offset  # readers see nothing at or past it
        self.high_watermark = loaded.log_start_offset  # set by the partition
        self.cleaned_offset: Offset = -1  # everything below was compacted once; -1: never
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.truncations = 0  # how often the end was cut off
        self.removed = False  # its directory was renamed, to be deleted
        # Whether closing the log has anything to write.
        self.changed = loaded.recovery_point != loaded.log_end_offset

    def end_offsets(self) -> list[Offset]:
        """Where each segment ends: at the next one's base offset, or at the log end."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]

    def move_log_start(self, offset: Offset) -> None:
        """Let the log start here, unless it starts later already."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.forget_replicated(offset)

    def fail_for_good(self, error: OSError) -> LogDirError:
        """Take the directory offline, whatever the error: memory and files disagree now."""
        failed = self.log_dir.fail(error)
        if failed.offline:
            return failed
        return self.log_dir.fail(OSError(errno.EIO, f"{self.topic_partition}: {error}", self.dir))

    @contextmanager
    def using_files(self, *, changing: bool = False) -> Iterator[None]:
        """Turn an OSError into the failure of the directory.

        `changing`: for work of several steps, which an error may have stopped between two of them.
        """
        self.log_dir.check()
        try:
            yield
        except OSError as error:
            failed = self.fail_for_good(error) if changing else self.log_dir.fail(error)
            raise failed from error
