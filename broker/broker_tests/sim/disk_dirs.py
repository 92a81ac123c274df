"""The log directories of a simulated broker: one or two, each may break or fill up.

Takes the place of `cluster_log.DataDisk`. Faults of a directory (`broken`, `level`) belong to the
world; that a broker has noticed one (`failure`) belongs to one life and ends with it: an
offline directory is offline until the broker starts again, as with log/log_dir.py.

    device breaks     the next write, sync or checkpoint fails with EIO
    room gets low     log/room.py refuses producers; followers, and the broker itself, go on
    room runs out     nothing is appended at all, because a reserve is left for the metadata log;
                      without one (a planted bug) a write fails with ENOSPC, and the directory
                      with it
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from broker_tests.manual_clock import ManualClock
from broker_tests.sim.cluster_log import Entry, LogWatcher, SimDir, SimLog
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.controller.stepping_aside import Level
from odradek_broker.log.errors import LogDirError, NoRoomError
from odradek_broker.log.future_logs import FutureLogs
from odradek_broker.log.types import AppendInfo
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset, TopicId, TopicPartition


@dataclass
class Directory(SimDir):
    broken: bool = False
    level: Level = Level.ENOUGH
    keeps_reserve: bool = True

    @property
    def usable(self) -> bool:
        """A broker that starts now could use it, and producers could write to it."""
        return not self.broken and self.level is Level.ENOUGH

    @property
    def can_start(self) -> bool:
        """As `storage.waits_for_room` sees it."""
        return not self.broken and self.level is not Level.FULL

    def touch(self) -> None:
        """A write, a sync, a checkpoint."""
        self.check()
        if self.broken:
            raise self.fail(errno.EIO)

    def admit(self, *, from_client: bool) -> None:
        """Decides as log/room.py does."""
        self.check()
        refused = self.level is Level.FULL or (self.level is Level.LOW and from_client)
        if refused and self.keeps_reserve:
            raise NoRoomError(self.path, 0, 0)

    def fail(self, code: int) -> LogDirError:
        self.failure = OSError(code, os.strerror(code), self.path)
        return LogDirError(self.path, self.failure)


class DirLog(SimLog):
    """A log that fails with its directory."""

    log_dir: Directory

    def append_as_leader(self, value: int, epoch: LeaderEpoch, now_ms: int) -> AppendInfo:
        if value not in self._offsets:
            self.log_dir.admit(from_client=True)
        return super().append_as_leader(value, epoch, now_ms)

    def append_as_follower(self, entries: tuple[Entry, ...]) -> None:
        self.log_dir.admit(from_client=False)
        super().append_as_follower(entries)

    def write_pending(self) -> None:
        if self.written_offset == len(self.entries):
            return
        try:
            self.log_dir.touch()
            if self.log_dir.level is Level.FULL and not self.log_dir.keeps_reserve:
                raise self.log_dir.fail(errno.ENOSPC)
        except LogDirError:
            self._cut(self.written_offset)
            raise
        super().write_pending()

    def flush(self) -> None:
        self.log_dir.touch()
        super().flush()

    def truncate_to(self, offset: Offset) -> None:
        self.log_dir.touch()
        super().truncate_to(offset)


@dataclass
class Directories:
    """All directories of one broker: what PartitionService needs of a LogManager."""

    node_id: int
    watcher: LogWatcher
    dirs: list[Directory]
    logs: dict[TopicPartition, DirLog] = field(default_factory=dict)
    clean_epoch: int = -1  # the broker epoch of a clean stop; gone at the next start
    futures: FutureLogs = field(default_factory=lambda: FutureLogs(SimDisk(), ManualClock()))

    @property
    def offline_dirs(self) -> list[Directory]:
        return [one for one in self.dirs if one.failure is not None]

    @property
    def online(self) -> list[Directory]:
        return [one for one in self.dirs if one.failure is None]

    def get_or_create(
        self, topic_partition: TopicPartition, _: TopicId, config: LogConfig, *, is_new: bool
    ) -> DirLog:
        log = self.logs.get(topic_partition)
        if log is not None:
            log.log_dir.check()
            return log
        if not is_new:
            for one in self.dirs:
                one.check()
        if not self.online:
            raise KafkaError(ErrorCode.kafka_storage_error, "all log directories are offline")
        where = min(self.online, key=self._count)
        log = DirLog(self.node_id, topic_partition, config, where, self.watcher)
        self.logs[topic_partition] = log
        return log

    def _count(self, one: Directory) -> int:
        return sum(log.log_dir is one for log in self.logs.values())

    def delete(self, topic_partition: TopicPartition) -> None:
        del self.logs[topic_partition]

    # ------------------------------------------------------------ lives

    def start(self) -> None:
        """The state that a starting process finds."""
        for one in self.dirs:
            one.failure = OSError(errno.EIO, os.strerror(errno.EIO)) if one.broken else None

    def crash(self, rng: Random, *, power_loss: bool) -> None:
        for log in self.logs.values():
            log.crash(rng, power_loss=power_loss)

    def replace(self, one: Directory, directory_id: UUID) -> None:
        """Replaces the directory by an empty one while the process is down."""
        one.directory_id = directory_id
        one.broken, one.level = False, Level.ENOUGH
        self.clean_epoch = -1
        self.logs = {name: log for name, log in self.logs.items() if log.log_dir is not one}

    def flush(self) -> None:
        for log in self.logs.values():
            if log.log_dir.failure is None:
                log.flush()

    def checkpoint(self) -> None:
        for one in self.online:
            one.touch()
        for log in self.logs.values():
            if log.log_dir.failure is None:
                log.checkpoint()
