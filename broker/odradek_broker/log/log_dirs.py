"""The directories of `log.dirs` together: opened at start, which of them work, where a log goes.

A broker keeps running while at least one directory is online. Example with two directories: `/a`
fails, `offline` is [/a], new replicas go to `/b`. Used by `LogManager`, in the event loop's thread.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek_broker.log.dir_failure import FailureKind
from odradek_broker.log.dir_identity import LogDirConfigError, new_directory_id, uuid_to_text
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.runtime.descriptors import share
from odradek_broker.runtime.disk import Disk, DiskUsage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition


class NoLogDirError(LogDirConfigError):
    """None of the directories can be used."""

    def __init__(self, text: str, kind: FailureKind) -> None:
        super().__init__(text)
        self.kind = kind


class DirDescription(NamedTuple):
    """One entry of DescribeLogDirs."""

    path: str
    directory_id: UUID
    failure: OSError | None
    usage: DiskUsage
    logs: list[Log]


class LogDirs:
    def __init__(self, paths: Sequence[str], disk: Disk, settings: LogSettings) -> None:
        self._disk = disk
        descriptors = share(disk.open_files_limit(), settings.open_files_max)
        files = FileCache(disk, descriptors.segment_files)
        self.all = [
            LogDir(path.rstrip("/") or "/", disk, files, settings.reserve_bytes) for path in paths
        ]
        self._preferred: dict[
            TopicPartition, LogDir
        ] = {}  # for a new replica (AlterReplicaLogDirs)
        self._being_created: Counter[LogDir] = Counter()  # logs whose files a thread creates now

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self.all)

    # Start and stop

    def open(self, settings: LogSettings) -> str:
        """Lock and identify all directories; returns the id of the cluster they belong to."""
        if len({log_dir.path for log_dir in self.all}) < len(self.all):
            raise LogDirConfigError("log.dirs: a directory is named twice")
        cluster_id = settings.cluster_id
        for log_dir in self.all:
            cluster_id = cluster_id or log_dir.known_cluster_id()
        cluster_id = cluster_id or uuid_to_text(new_directory_id())
        for log_dir in self.all:
            log_dir.open(cluster_id, settings.node_id)
        return cluster_id

    def require_one(self) -> None:
        """NoLogDirError unless at least one directory is online."""
        if not self.online:
            text = f"log.dirs: no directory can be used: {self.failures()}"
            raise NoLogDirError(text, self.failure_kind)

    def close_unchanged(self) -> None:
        """Release the directories as they were found: no log was loaded."""
        for log_dir in self.all:
            epoch = log_dir.previous_broker_epoch
            log_dir.close(clean=log_dir.clean, broker_epoch=epoch)

    @property
    def clean_shutdown(self) -> bool:
        """Whether the last shutdown of all directories was clean, so that nothing is recovered."""
        return all(log_dir.clean for log_dir in self.all)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown; -1 if it was not clean, or is unknown."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self.all}
        return epochs.pop() if len(epochs) == 1 else -1

    # Failure

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.all if log_dir.failure is None]

    @property
    def offline(self) -> list[LogDir]:
        return [log_dir for log_dir in self.all if log_dir.failure is not None]

    def failures(self) -> str:
        """Which directories failed, and why."""
        return "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.offline)

    @property
    def failure_kind(self) -> FailureKind:
        """Out of space, if every directory that failed ran out of space."""
        kinds = {log_dir.failure_kind for log_dir in self.offline}
        only_space = kinds == {FailureKind.OUT_OF_SPACE}
        return FailureKind.OUT_OF_SPACE if only_space else FailureKind.DEVICE

    # Where a log goes

    def at(self, path: str) -> LogDir:
        """KafkaError: LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR if it is offline."""
        for log_dir in self.all:
            if log_dir.path == (path.rstrip("/") or "/"):
                log_dir.check()
                return log_dir
        raise KafkaError(ErrorCode.log_dir_not_found, f"{path} is not one of log.dirs")

    def prefer(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        """If this broker gets a replica of the partition, its log is created there."""
        self._preferred[topic_partition] = log_dir

    def for_new_log(self, topic_partition: TopicPartition) -> LogDir:
        """The preferred directory, else the one with the fewest logs."""
        log_dir = self._preferred.pop(topic_partition, None)
        if log_dir is None or log_dir.failure is not None:
            created = self._being_created
            # A directory that is short of space refuses producers: only if all are.
            log_dir = min(
                self.online, key=lambda found: (found.room.low, len(found.logs) + created[found])
            )
        return log_dir

    def creation_began(self, log_dir: LogDir) -> None:
        self._being_created[log_dir] += 1

    def creations_done(self) -> None:
        self._being_created.clear()

    def describe(self) -> list[DirDescription]:
        """Sizes of the file systems and the logs of each directory, for DescribeLogDirs."""
        found = []
        for log_dir in self.all:
            usage = DiskUsage(-1, -1)
            if log_dir.failure is None:
                try:
                    usage = self._disk.usage(log_dir.path)
                except OSError as error:
                    log_dir.fail(error)
            logs = sorted(log_dir.logs, key=lambda log: log.topic_partition)
            found.append(
                DirDescription(log_dir.path, log_dir.directory_id, log_dir.failure, usage, logs)
            )
        return found
