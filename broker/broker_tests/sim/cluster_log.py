"""The data disk of a simulated broker: logs that are lists, with a page cache under them.

Replaces `log.Log` and `log.manager.LogManager` where the production code of partition/ uses
them. A log of ten records whose last write is still queued:

    entries   0 ············ synced ······ written ·· end       (epoch, value, chain)
              survives all   survives      lost with
                             kill -9       the process

`chain` is a checksum of all entries up to this one: two logs that agree in it agree in
everything before. Values are unique, and a value that is in the log already is a duplicate,
as an idempotent producer's retry is (without its sequence numbers).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol
from uuid import UUID

from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.future_logs import FutureLogs
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.types import AppendInfo
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import LeaderEpoch, Offset, TopicId, TopicPartition

_CHAIN_PRIME = 1_000_003
_CHAIN_MASK = (1 << 61) - 1


class Entry(NamedTuple):
    epoch: LeaderEpoch
    value: int
    chain: int


class LogWatcher(Protocol):
    """Sees every change of every log (`cluster_checker.py`)."""

    def appended(self, log: SimLog, offset: Offset, entry: Entry) -> None: ...

    def truncated(self, log: SimLog, offset: Offset) -> None: ...

    def high_watermark_moved(self, log: SimLog, high_watermark: Offset) -> None: ...


@dataclass
class SimDir:
    path: str
    directory_id: UUID
    failure: OSError | None = None  # as this life of the broker has met it

    def check(self) -> None:
        if self.failure is not None:
            raise LogDirError(self.path, self.failure)


class SimLog:
    def __init__(
        self,
        node_id: int,
        topic_partition: TopicPartition,
        config: LogConfig,
        log_dir: SimDir,
        watcher: LogWatcher,
    ) -> None:
        self.node_id = node_id
        self.topic_partition = topic_partition
        self.config = config
        self.log_dir = log_dir
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()
        self.log_start_offset: Offset = 0
        self.written_offset: Offset = 0
        self.recovery_point: Offset = 0  # synced
        self.checkpointed: Offset = 0  # the high watermark that is on disk
        self._high_watermark: Offset = 0
        self._offsets: dict[int, Offset] = {}  # of values
        self._watcher = watcher

    @property
    def log_end_offset(self) -> Offset:
        return len(self.entries)

    @property
    def high_watermark(self) -> Offset:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, high_watermark: Offset) -> None:
        self._watcher.high_watermark_moved(self, high_watermark)
        self._high_watermark = high_watermark

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_offset_for(epoch, len(self.entries))

    # ------------------------------------------------------------ writing

    def append_as_leader(self, value: int, epoch: LeaderEpoch, _: int) -> AppendInfo:
        before = self._offsets.get(value)
        if before is not None:
            return AppendInfo(before, before, -1, duplicate=True)
        self._append(epoch, value)
        return AppendInfo(len(self.entries) - 1, len(self.entries) - 1, -1, duplicate=False)

    def append_as_follower(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self._append(entry.epoch, entry.value)
        self.write_pending()

    def _append(self, epoch: LeaderEpoch, value: int) -> None:
        offset = len(self.entries)
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, offset)
        chain = self.entries[-1].chain if self.entries else 0
        chain = (chain * _CHAIN_PRIME + value * 31 + epoch + 1) & _CHAIN_MASK
        entry = Entry(epoch, value, chain)
        self.entries.append(entry)
        self._offsets[value] = offset
        self._watcher.appended(self, offset, entry)

    def write_pending(self) -> None:
        self.written_offset = len(self.entries)

    def flush(self) -> None:
        self.recovery_point = self.written_offset

    def truncate_to(self, offset: Offset) -> None:
        self._watcher.truncated(self, offset)
        self._cut(offset)
        self._high_watermark = min(self._high_watermark, offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        assert offset == 0, "no log of the simulation begins elsewhere"
        self.truncate_to(0)
        self.epochs.clear()

    def _cut(self, offset: Offset) -> None:
        for entry in self.entries[offset:]:
            self._offsets.pop(entry.value, None)
        del self.entries[offset:]
        self.epochs.truncate_from_end(offset)
        self.written_offset = min(self.written_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def update_config(self, config: LogConfig) -> None:
        self.config = config

    # ------------------------------------------------------------ the disk

    def crash(self, rng: Random, *, power_loss: bool) -> None:
        """Queued records are gone; with the power also a part of what was not synced."""
        end = self.written_offset
        if power_loss:
            end = rng.randint(self.recovery_point, end)
        epochs = list(self.epochs.entries)
        self._cut(end)
        if not power_loss and rng.random() < 0.5:
            # The file of the epochs knew of one that began at the end.
            self.epochs.entries = [entry for entry in epochs if entry[1] <= end]
        self.written_offset = self.recovery_point = len(self.entries)
        self._high_watermark = min(self.checkpointed, end)

    def checkpoint(self) -> None:
        self.checkpointed = self._high_watermark


@dataclass
class DataDisk:
    """One log directory. Its identity changes when the disk is replaced."""

    node_id: int
    directory_id: UUID
    watcher: LogWatcher
    logs: dict[TopicPartition, SimLog] = field(default_factory=dict)
    clean_epoch: int = -1  # the broker epoch of a clean stop; gone at the next start
    offline_dirs: tuple[SimDir, ...] = ()
    # With one directory nothing moves between directories.
    futures: FutureLogs = field(default_factory=lambda: FutureLogs(SimDisk(), ManualClock()))

    def get_or_create(
        self, topic_partition: TopicPartition, _: TopicId, config: LogConfig, *, is_new: bool
    ) -> SimLog:
        log = self.logs.get(topic_partition)
        if log is None:
            log_dir = SimDir("data", self.directory_id)
            log = SimLog(self.node_id, topic_partition, config, log_dir, self.watcher)
            self.logs[topic_partition] = log
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        del self.logs[topic_partition]

    def crash(self, rng: Random, *, power_loss: bool) -> None:
        for log in self.logs.values():
            log.crash(rng, power_loss=power_loss)

    def replace(self, directory_id: UUID) -> None:
        self.directory_id = directory_id
        self.clean_epoch = -1
        self.logs.clear()

    def flush(self) -> None:
        for log in self.logs.values():
            log.flush()

    def checkpoint(self) -> None:
        for log in self.logs.values():
            log.checkpoint()
