"""All logs of a broker, in the directories of `log.dirs`.

    manager = LogManager(["/data/a", "/data/b"], RealDisk(), SystemClock(), LogSettings(…))
                                       locks, identity; LogDirConfigError if that fails
    manager.load(say, config_of)       in a thread; all logs that are there, recovered if need be
    manager.get_or_create(tp, id, cfg) a new partition goes where there are the fewest
    manager.tick(now_ms)               about once a second; the jobs it gives run in a thread
    manager.close()                    a clean shutdown: the next start need not recover

Owned by the event loop's thread, except for `load`, which runs before anyone else calls, and
the jobs of `tick`. The metadata log is not among them: the controller opens it itself.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import NamedTuple
from uuid import UUID

from odradek_broker.log import checkpoints
from odradek_broker.log.dir_failure import FailureKind
from odradek_broker.log.dir_identity import LogDirConfigError, new_directory_id, uuid_to_text
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.file_names import (
    DELETE_DIR,
    FUTURE_DIR,
    PARTITION_METADATA,
    STRAY_DIR,
    dir_id,
    is_delete_dir,
    parse_dir_name,
    retired_dir_name,
)
from odradek_broker.log.future_logs import FoundFuture, FutureLogs, future_dir_name
from odradek_broker.log.housekeeping import Housekeeping, Job, LogSettings
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.partition_metadata import encode_partition_metadata
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.descriptors import share
from odradek_broker.runtime.disk import Disk, DiskUsage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import METADATA_TOPIC, ZERO_UUID, Offset, TopicPartition

logger = logging.getLogger(__name__)

# With more logs than this to close, one sync of the file system is faster than an fsync of
# each file (measured: 10,000 logs in 3 s instead of 68 s).
FSYNCS_MAX = 50


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


class _Checkpoints(NamedTuple):
    """What the checkpoints of a directory said at start."""

    recovery_points: dict[TopicPartition, Offset]
    log_starts: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]
    cleaner_offsets: dict[TopicPartition, Offset]


class LogManager:
    """Invariant: a partition has its directory in at most one log dir, and one Log."""

    def __init__(
        self, dirs: Sequence[str], disk: Disk, clock: Clock, settings: LogSettings | None = None
    ) -> None:
        self.settings = settings or LogSettings()
        self._disk = disk
        self._clock = clock
        descriptors = share(disk.open_files_limit(), self.settings.open_files_max)
        files = FileCache(disk, descriptors.segment_files)
        self.dirs = [
            LogDir(path.rstrip("/") or "/", disk, files, self.settings.reserve_bytes)
            for path in dirs
        ]
        self.logs: dict[TopicPartition, Log] = {}
        self.futures = FutureLogs(disk, clock)
        self._preferred: dict[TopicPartition, LogDir] = {}  # where a new replica is to be
        self._found: dict[TopicPartition, LogDir] = {}  # on disk, not loaded yet
        self._found_futures: list[FoundFuture] = []
        self._being_made: Counter[LogDir] = Counter()  # logs whose files a thread makes
        self._checkpoints: dict[LogDir, _Checkpoints] = {}
        self._bytes_recovered = 0
        self._housekeeping = Housekeeping(self.dirs, self.settings)
        try:
            self.cluster_id = self._open()
        except LogDirConfigError:
            for log_dir in self.dirs:
                epoch = log_dir.previous_broker_epoch
                log_dir.close(clean=log_dir.clean, broker_epoch=epoch)
            raise

    # Start

    def _open(self) -> str:
        """Lock and read all directories; gives the id of the cluster that they belong to."""
        if len({log_dir.path for log_dir in self.dirs}) < len(self.dirs):
            raise LogDirConfigError("log.dirs: a directory is named twice")
        cluster_id = self.settings.cluster_id
        for log_dir in self.dirs:
            cluster_id = cluster_id or log_dir.known_cluster_id()
        cluster_id = cluster_id or uuid_to_text(new_directory_id())
        futures: list[tuple[LogDir, str]] = []
        deleted_ids: set[str] = set()
        for log_dir in self.dirs:
            log_dir.open(cluster_id, self.settings.node_id)
            if log_dir.failure is None:
                try:
                    self._survey(log_dir, futures, deleted_ids)
                except OSError as error:
                    log_dir.fail(error)
        all_online = len(self._online()) == len(self.dirs)
        self._found_futures = self.futures.settle(
            futures, deleted_ids, self._found, all_online=all_online
        )
        if not self._online():
            text = f"log.dirs: no directory can be used: {self.failures()}"
            raise NoLogDirError(text, self.failure_kind)
        return cluster_id

    def _survey(
        self, log_dir: LogDir, futures: list[tuple[LogDir, str]], deleted_ids: set[str]
    ) -> None:
        """What is in a directory; its future logs and deleted ones are added to the lists."""
        self._checkpoints[log_dir] = _Checkpoints(
            log_dir.read_checkpoint(checkpoints.RECOVERY_POINT),
            log_dir.read_checkpoint(checkpoints.LOG_START_OFFSET),
            log_dir.read_checkpoint(checkpoints.HIGH_WATERMARK),
            log_dir.read_checkpoint(checkpoints.CLEANER_OFFSET),
        )
        now_ms = self._clock.now_ms()
        for entry in log_dir.disk.scan(log_dir.path):
            if not entry.is_dir:
                continue
            if is_delete_dir(entry.name):
                log_dir.doom(f"{log_dir.path}/{entry.name}", now_ms)
                deleted_ids.add(dir_id(entry.name))
                continue
            if entry.name.endswith(FUTURE_DIR):
                futures.append((log_dir, entry.name))
                continue
            topic_partition = parse_dir_name(entry.name)
            if topic_partition is None or topic_partition.topic == METADATA_TOPIC:
                continue
            other = self._found.get(topic_partition)
            if other is not None:
                raise LogDirConfigError(
                    f"log.dirs: {topic_partition} is in both {other.path} and {log_dir.path}"
                )
            self._found[topic_partition] = log_dir

    def load(
        self,
        say: Callable[[str], None] = lambda _text: None,
        config_of: Callable[[TopicPartition], LogConfig] = lambda _topic_partition: LogConfig(),
    ) -> None:
        """Load every log found on disk, several at a time; recover them after a crash.

        `say` is called from the loading threads with how far it is.
        """
        threads = self.settings.recovery_threads_per_dir * len(self.dirs)
        total = len(self._found)
        with ThreadPoolExecutor(threads, thread_name_prefix="log-load") as pool:
            jobs = [
                pool.submit(self._load, topic_partition, log_dir, config_of(topic_partition))
                for topic_partition, log_dir in sorted(self._found.items())
            ]
            jobs += [
                pool.submit(self._load_future, found, config_of(found.topic_partition))
                for found in self._found_futures
            ]
            for count, job in enumerate(as_completed(jobs), 1):
                job.result()
                if count % (total // 100 + 1) == 0 or count == total:
                    recovered = self._bytes_recovered // 1_000_000
                    say(f"{count} of {total} logs loaded, {recovered} MB recovered")
        for log_dir in self._online():
            log_dir.checkpoint_recovery_points()()
        self._checkpoints.clear()

    def _load(
        self, topic_partition: TopicPartition, log_dir: LogDir, config: LogConfig
    ) -> Log | None:
        """None if the directory fails; the others are loaded all the same."""
        log = self._open_log(topic_partition, log_dir, config)
        if log is not None:
            self.logs[topic_partition] = log
        self._found.pop(topic_partition, None)
        return log

    def _load_future(self, found: FoundFuture, config: LogConfig) -> None:
        copy = self._open_log(found.topic_partition, found.log_dir, config, found.path)
        if copy is not None:
            self.futures.logs[found.topic_partition] = copy

    def _open_log(
        self,
        topic_partition: TopicPartition,
        log_dir: LogDir,
        config: LogConfig,
        directory: str = "",
    ) -> Log | None:
        known = self._checkpoints[log_dir]
        options = LoadOptions(
            clean=log_dir.clean,
            recovery_point=known.recovery_points.get(topic_partition, 0),
            log_start_offset=known.log_starts.get(topic_partition, 0),
            gaps_allowed=config.cleanup_compact or topic_partition in known.cleaner_offsets,
            cleaned_up_to=known.cleaner_offsets.get(topic_partition, 0),
            producer_id_expiration_ms=self.settings.producer_id_expiration_ms,
            on_segment_recovered=self._count_recovered,
        )
        log = None
        try:
            log_dir.check()
            now_ms = self._clock.now_ms()
            log = load_log(log_dir, topic_partition, config, options, now_ms, directory)
            high_watermark = known.high_watermarks.get(topic_partition, 0)
            log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
            log.checkpointed = log.checkpoint_max = options.recovery_point
            log.cleaned_offset = known.cleaner_offsets.get(topic_partition, -1)
            log_dir.logs.add(log)
        except OSError as error:
            failed = log_dir.fail(error)
            if not failed.offline:
                raise failed from error  # `ulimit -n` is too low to start with
            return None
        except LogDirError:
            return None
        return log

    def _count_recovered(self, size: int) -> None:
        self._bytes_recovered += size

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
        """The partition's log: in memory, on disk, or made in the directory with the fewest.

        `is_new=False` says that this broker had the partition before; while a directory is
        offline its log may be there, so no empty one is made elsewhere.
        """
        log = self.logs.get(topic_partition)
        if log is None and topic_partition in self._found:
            log_dir = self._found[topic_partition]
            log = self._load(topic_partition, log_dir, config)
            if log is None:
                raise LogDirError(log_dir.path, log_dir.failure)
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
            for log_dir in self.dirs:
                log_dir.check()
        return self._create(topic_partition, topic_id, config)

    def _create(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        if not self._online():
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"no log directory can be used: {self.failures()}"
            )
        log_dir = self._dir_for_new(topic_partition)
        directory = f"{log_dir.path}/{topic_partition}"
        log = self.logs[topic_partition] = self._make(
            log_dir, directory, topic_partition, topic_id, config
        )
        return log

    def _dir_for_new(self, topic_partition: TopicPartition) -> LogDir:
        log_dir = self._preferred.pop(topic_partition, None)
        if log_dir is None or log_dir.failure is not None:
            made = self._being_made
            # One that is short of room only if all are: producers are refused there.
            log_dir = min(
                self._online(), key=lambda found: (found.room.low, len(found.logs) + made[found])
            )
        return log_dir

    def creation(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, *, is_new: bool
    ) -> Callable[[], Log] | None:
        """A job that makes the files of a new log, to run in a thread; then `adopt` its result.

        None where there is nothing to make or it must not be made now: `get_or_create` knows.
        """
        here = topic_partition in self.logs or topic_partition in self._found
        if here or not self._online() or (self.offline_dirs and not is_new):
            return None
        log_dir = self._dir_for_new(topic_partition)
        self._being_made[log_dir] += 1
        directory = f"{log_dir.path}/{topic_partition}"
        return partial(self._make_files, log_dir, directory, topic_partition, topic_id, config)

    def adopt(self, log: Log) -> None:
        """What a job of `creation` made is the partition's log from now on."""
        self.logs[log.topic_partition] = log
        log.log_dir.logs.add(log)

    def creations_done(self) -> None:
        """No job of `creation` is under way: all are adopted, or failed."""
        self._being_made.clear()

    def _make(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
    ) -> Log:
        log = self._make_files(log_dir, directory, topic_partition, topic_id, config)
        log_dir.logs.add(log)
        return log

    def _make_files(
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

    # Moving between directories

    def dir_of(self, path: str) -> LogDir:
        """KafkaError: LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR if it is offline."""
        for log_dir in self.dirs:
            if log_dir.path == (path.rstrip("/") or "/"):
                log_dir.check()
                return log_dir
        raise KafkaError(ErrorCode.log_dir_not_found, f"{path} is not one of log.dirs")

    def prefer(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        """If the partition comes to this broker, its log is made there."""
        self._preferred[topic_partition] = log_dir

    def create_future(self, current: Log, log_dir: LogDir) -> Log:
        """An empty log in another directory, that is to take the place of this one."""
        topic_partition = current.topic_partition
        directory = f"{log_dir.path}/{future_dir_name(topic_partition)}"
        copy = self._make(log_dir, directory, topic_partition, current.topic_id, current.config)
        if current.cleaned_offset >= 0:
            # It will have gaps as the other has; what is in it counts as never cleaned.
            copy.cleaned_offset = 0
            log_dir.checkpoint_cleaner_offsets()()
        self.futures.logs[topic_partition] = copy
        return copy

    def swap(self, topic_partition: TopicPartition) -> Log:
        """The complete copy is the replica's log from now on."""
        log = self.logs[topic_partition] = self.futures.swap(self.logs[topic_partition])
        return log

    def _assign_topic_id(self, log: Log, topic_id: UUID) -> None:
        log.topic_id = topic_id
        if topic_id != ZERO_UUID:
            # Synced with the first flush: the cluster's metadata knows it too.
            data = encode_partition_metadata(topic_id)
            self._disk.write(f"{log.dir}/{PARTITION_METADATA}", data, sync=False)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the directory now, remove it after `file.delete.delay.ms`."""
        self.futures.drop(topic_partition)
        log = self.logs.get(topic_partition)
        path = self._retire(topic_partition, DELETE_DIR)
        if log is not None and path is not None:
            log.log_dir.doom(path, self._clock.now_ms() + log.config.file_delete_delay_ms)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """A log that the cluster's metadata does not know: renamed to `-stray`, never removed.

        A crash in the middle of a topic's deletion leaves such a log; so does a metadata log
        that somebody lost, and then it holds data that is still wanted.
        """
        self.futures.drop(topic_partition)
        path = self._retire(topic_partition, STRAY_DIR)
        logger.warning(
            "%s is of no topic of this cluster; kept as %s, remove it if you do not need it",
            topic_partition,
            path,
        )

    def _retire(self, topic_partition: TopicPartition, suffix: str) -> str | None:
        """Forget a log and rename its directory; the new path."""
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
            # A topic of the same name must not inherit it.
            log.log_dir.checkpoint_cleaner_offsets()()
        return path

    # Running and stopping

    def _online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    @property
    def directory_ids(self) -> list[UUID]:
        return [log_dir.directory_id for log_dir in self._online()]

    @property
    def clean_shutdown(self) -> bool:
        """Whether all directories were left in order, so that no recovery is needed."""
        return all(log_dir.clean for log_dir in self.dirs)

    @property
    def previous_broker_epoch(self) -> int:
        """In which this broker stopped cleanly; -1 if it did not, or that is not known."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self.dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    @property
    def offline_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.failure is not None]

    def failures(self) -> str:
        """Which directories failed, and why."""
        return "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.offline_dirs)

    @property
    def failure_kind(self) -> FailureKind:
        """Out of space, if that is all that is wrong with the directories that failed."""
        kinds = {log_dir.failure_kind for log_dir in self.offline_dirs}
        only_space = kinds == {FailureKind.OUT_OF_SPACE}
        return FailureKind.OUT_OF_SPACE if only_space else FailureKind.DEVICE

    def tick(self, now_ms: int) -> Iterator[Job]:
        """Do what is due; gives the part that may block (fsync, unlink), to run in a thread.

        A job raises LogDirError if its directory fails; that directory is offline then.
        """
        return self._housekeeping.tick(now_ms)

    def describe_dirs(self) -> list[DirDescription]:
        """Sizes of the file systems and the logs of each directory, for DescribeLogDirs."""
        found = []
        for log_dir in self.dirs:
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

    def close(self, broker_epoch: int = -1) -> None:
        """Write and sync all logs, then say that it was done."""
        if self._checkpoints and not self.logs:  # not loaded: all is as it was found
            for log_dir in self.dirs:
                epoch = log_dir.previous_broker_epoch
                log_dir.close(clean=log_dir.clean, broker_epoch=epoch)
            return
        for log_dir in self.dirs:
            closed = log_dir.failure is None and self._close_logs(log_dir)
            log_dir.close(clean=closed and not self._found, broker_epoch=broker_epoch)

    def _close_logs(self, log_dir: LogDir) -> bool:
        one_by_one = len(log_dir.logs) <= FSYNCS_MAX
        try:
            for log in log_dir.logs:
                log.close(sync=one_by_one)
            if not one_by_one:
                self._disk.sync_all(log_dir.path)
                for log in log_dir.logs:
                    log.mark_synced()
            log_dir.checkpoint_recovery_points()()
            log_dir.checkpoint_log_starts()()
            log_dir.checkpoint_high_watermarks()()
        except OSError as error:
            log_dir.fail(error)
        except LogDirError:
            pass
        return log_dir.failure is None
