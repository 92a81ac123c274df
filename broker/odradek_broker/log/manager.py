"""All logs of a broker, in the directories of `log.dirs`.

    manager = LogManager(["/data/a", "/data/b"], RealDisk(), SystemClock(), LogSettings(…))
                                       locks, identity; LogDirConfigError if that fails
    manager.load(report, config_of)    in a thread; all logs on disk, recovered after a crash
    manager.get_or_create(tp, id, cfg) a new log goes to the directory with the fewest
    manager.tick(now_ms)               about once a second; the jobs it yields run in a thread
    manager.close()                    a clean shutdown: the next start need not recover

Owned by the event loop's thread, except for `load`, which runs before all other calls, and the jobs
of `tick`. The metadata log is not among these logs: the controller opens it itself. The directories
are in `log_dirs.py`, loading at start in `start_loading.py`, moves between directories in
`future_logs.py`, periodic work in `housekeeping.py`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import UUID

from odradek_broker.log.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
)
from odradek_broker.log.dir_failure import FailureKind
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_names import (
    DELETE_DIR,
    PARTITION_METADATA,
    STRAY_DIR,
    retired_dir_name,
)
from odradek_broker.log.future_logs import FutureLogs, future_dir_name
from odradek_broker.log.housekeeping import Housekeeping, Job, LogSettings
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.log_dirs import DirDescription, LogDirs
from odradek_broker.log.partition_metadata import encode_partition_metadata
from odradek_broker.log.start_loading import StartLoader
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import Disk
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

# With more logs than this to close, one sync of the file system is faster than an fsync of
# each file (measured: 10,000 logs in 3 s instead of 68 s).
FSYNCS_MAX = 50


class LogManager:
    """Invariant: a partition has its directory in at most one log dir, and one Log."""

    def __init__(
        self, dirs: Sequence[str], disk: Disk, clock: Clock, settings: LogSettings | None = None
    ) -> None:
        self.settings = settings or LogSettings()
        self.logs: dict[TopicPartition, Log] = {}
        self.futures = FutureLogs(disk, clock)
        self._disk = disk
        self._clock = clock
        self._dirs = LogDirs(dirs, disk, self.settings)
        self._loader = StartLoader(self._dirs, self.futures, clock, self.settings)
        self._housekeeping = Housekeeping(self._dirs.all, self.settings)
        try:
            self.cluster_id = self._dirs.open(self.settings)
            self._loader.survey()
            self._dirs.require_one()
        except LogDirConfigError:
            self._dirs.close_unchanged()
            raise

    def load(
        self,
        report: Callable[[str], None] = lambda _text: None,
        config_of: Callable[[TopicPartition], LogConfig] = lambda _topic_partition: LogConfig(),
    ) -> None:
        """Load every log found on disk, several at a time; recover them after a crash.

        `report` is called from the loading threads with the progress.
        """
        self._loader.load(self._add, report, config_of)

    def _add(self, log: Log) -> None:
        self.logs[log.topic_partition] = log

    # Logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        is_new: bool = True,
    ) -> Log:
        """The partition's log: from memory, from disk, or a new one.

        `is_new=False` says that this broker had the partition before. Its log may be in a
        directory that is offline; then no empty one is created elsewhere.
        """
        log = self.logs.get(topic_partition)
        if log is None and topic_partition in self._loader.found:
            log = self._load_found(topic_partition, config)
        if log is not None:
            if topic_id in (log.topic_id, ZERO_UUID):
                return log
            if log.topic_id != ZERO_UUID:
                logger.warning("%s belongs to a deleted topic of the same name", log.dir)
                self.delete(topic_partition)
                return self._create(topic_partition, topic_id, config)
            self._assign_topic_id(log, topic_id)
            return log
        if not is_new:
            for log_dir in self._dirs:
                log_dir.check()
        return self._create(topic_partition, topic_id, config)

    def _load_found(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        log_dir = self._loader.found[topic_partition]
        log = self._loader.open_found(topic_partition, config)
        if log is None:
            raise LogDirError(log_dir.path, log_dir.failure)
        self._add(log)
        return log

    def _create(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        if not self._dirs.online:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"no log directory can be used: {self.failures()}"
            )
        log_dir = self._dirs.for_new_log(topic_partition)
        directory = f"{log_dir.path}/{topic_partition}"
        log = self._create_files(log_dir, directory, topic_partition, topic_id, config)
        self.adopt(log)
        return log

    def creation(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, *, is_new: bool
    ) -> Callable[[], Log] | None:
        """A job that creates the files of a new log, to run in a thread; then `adopt` its result.

        None if the log exists, or may not be created now: `get_or_create` decides which.
        """
        exists = topic_partition in self.logs or topic_partition in self._loader.found
        if exists or not self._dirs.online or (self.offline_dirs and not is_new):
            return None
        log_dir = self._dirs.for_new_log(topic_partition)
        self._dirs.creation_began(log_dir)
        directory = f"{log_dir.path}/{topic_partition}"
        return partial(self._create_files, log_dir, directory, topic_partition, topic_id, config)

    def adopt(self, log: Log) -> None:
        """Use the log that a job of `creation` returned for the partition."""
        self._add(log)
        log.log_dir.logs.add(log)

    def creations_done(self) -> None:
        """No job of `creation` is running: each result was adopted, or failed."""
        self._dirs.creations_done()

    def _create_files(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
    ) -> Log:
        try:
            self._disk.make_dir(directory)
            now_ms = self._clock.now_ms()
            log = load_log(log_dir, topic_partition, config, LoadOptions(), now_ms, directory)
            self._assign_topic_id(log, topic_id)
        except OSError as error:
            raise log_dir.fail(error) from error
        return log

    def _assign_topic_id(self, log: Log, topic_id: UUID) -> None:
        log.topic_id = topic_id
        if topic_id != ZERO_UUID:
            # Synced with the first flush; until then the cluster's metadata has it.
            data = encode_partition_metadata(topic_id)
            self._disk.write(f"{log.dir}/{PARTITION_METADATA}", data, sync=False)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the directory now, remove it after `file.delete.delay.ms`."""
        self.futures.drop(topic_partition)
        log = self.logs.get(topic_partition)
        path = self._retire(topic_partition, DELETE_DIR)
        if log is not None and path is not None:
            due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
            log.log_dir.remove_later(path, due_ms)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Rename a log that the cluster's metadata does not have to `-stray`; never removed.

        A crash during the deletion of a topic leaves such a log. So does a lost metadata log, and
        then the data is still wanted.
        """
        self.futures.drop(topic_partition)
        path = self._retire(topic_partition, STRAY_DIR)
        logger.warning(
            "%s belongs to no topic of this cluster; kept as %s, remove it if you do not need it",
            topic_partition,
            path,
        )

    def _retire(self, topic_partition: TopicPartition, suffix: str) -> str | None:
        """Forget a log and rename its directory; returns the new path."""
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return None
        log.removed = True
        log.forget_pending()
        log.log_dir.logs.discard(log)
        if log.log_dir.failure is not None:
            return None
        path = f"{log.log_dir.path}/{retired_dir_name(topic_partition, suffix)}"
        try:
            self._disk.rename(log.dir, path)
        except OSError as error:
            raise log.log_dir.fail(error) from error
        if log.cleaned_offset >= 0:
            # A new topic of the same name must not start with this offset.
            log.log_dir.checkpoints.write(CLEANER_OFFSET)
        return path

    # Moving between directories

    def prefer(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        """If this broker gets a replica of the partition, its log is created there."""
        self._dirs.prefer(topic_partition, log_dir)

    def create_future(self, current: Log, log_dir: LogDir) -> Log:
        """An empty log in another directory, which will replace this one once it is complete."""
        topic_partition = current.topic_partition
        directory = f"{log_dir.path}/{future_dir_name(topic_partition)}"
        topic_id, config = current.topic_id, current.config
        copy = self._create_files(log_dir, directory, topic_partition, topic_id, config)
        log_dir.logs.add(copy)
        if current.cleaned_offset >= 0:
            # The copy will have the same gaps; its contents count as never compacted.
            copy.cleaned_offset = 0
            log_dir.checkpoints.write(CLEANER_OFFSET)
        self.futures.logs[topic_partition] = copy
        return copy

    def swap(self, topic_partition: TopicPartition) -> Log:
        """Use the complete copy as the replica's log."""
        log = self.logs[topic_partition] = self.futures.swap(self.logs[topic_partition])
        return log

    # Directories

    @property
    def dirs(self) -> list[LogDir]:
        return self._dirs.all

    @property
    def offline_dirs(self) -> list[LogDir]:
        return self._dirs.offline

    @property
    def directory_ids(self) -> list[UUID]:
        return [log_dir.directory_id for log_dir in self._dirs.online]

    def dir_of(self, path: str) -> LogDir:
        """KafkaError: LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR if it is offline."""
        return self._dirs.at(path)

    def failures(self) -> str:
        """Which directories failed, and why."""
        return self._dirs.failures()

    @property
    def failure_kind(self) -> FailureKind:
        """Out of space, if every directory that failed ran out of space."""
        return self._dirs.failure_kind

    @property
    def clean_shutdown(self) -> bool:
        """Whether the last shutdown of all directories was clean, so that nothing is recovered."""
        return self._dirs.clean_shutdown

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown; -1 if it was not clean, or is unknown."""
        return self._dirs.previous_broker_epoch

    def describe_dirs(self) -> list[DirDescription]:
        """Sizes of the file systems and the logs of each directory, for DescribeLogDirs."""
        return self._dirs.describe()

    # Running and stopping

    def tick(self, now_ms: int) -> Iterator[Job]:
        """Run due tasks; yields the parts that may block (fsync, unlink), to run in a thread.

        A job raises LogDirError if its directory fails; that directory is offline then.
        """
        return self._housekeeping.tick(now_ms)

    def close(self, broker_epoch: int = -1) -> None:
        """Write and sync all logs, then mark the shutdown as clean."""
        if self._loader.pending and not self.logs:
            self._dirs.close_unchanged()
            return
        for log_dir in self._dirs:
            closed = log_dir.failure is None and self._close_logs(log_dir)
            log_dir.close(clean=closed and not self._loader.found, broker_epoch=broker_epoch)

    def _close_logs(self, log_dir: LogDir) -> bool:
        one_by_one = len(log_dir.logs) <= FSYNCS_MAX
        try:
            for log in log_dir.logs:
                log.close(sync=one_by_one)
            if not one_by_one:
                self._disk.sync_all(log_dir.path)
                for log in log_dir.logs:
                    log.mark_synced()
            log_dir.checkpoints.write(RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK)
        except OSError as error:
            log_dir.fail(error)
        except LogDirError:
            pass
        return log_dir.failure is None
