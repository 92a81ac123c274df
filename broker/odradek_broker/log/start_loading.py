"""Loading at start: find the logs in all directories, open each, recover them after a crash.

    survey()           names only: which partition is where, interrupted moves are completed
    load(…)            opens every log found, several at a time
    open_found(…)      opens one that is asked for before `load`, or after its directory was skipped

Example: `/a/orders-0`, `/b/orders-1` and `/b/orders-0.<id>-future` give the logs orders-0 and
orders-1, and a future log of orders-0 (`future_logs.py`). Used by `LogManager`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import NamedTuple

from odradek_broker.log import checkpoints
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_names import FUTURE_DIR, dir_id, is_delete_dir, parse_dir_name
from odradek_broker.log.future_logs import FoundFuture, FutureLogs
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.log_dirs import LogDirs
from odradek_broker.log.old_formats import require_current_format
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import Clock
from odradek_protocol.ids import METADATA_TOPIC, Offset, TopicPartition


class _Checkpoints(NamedTuple):
    """The content of a directory's checkpoint files at start."""

    recovery_points: dict[TopicPartition, Offset]
    log_starts: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]
    cleaner_offsets: dict[TopicPartition, Offset]


class StartLoader:
    def __init__(
        self, dirs: LogDirs, futures: FutureLogs, clock: Clock, settings: LogSettings
    ) -> None:
        self.found: dict[TopicPartition, LogDir] = {}  # on disk, not loaded yet
        self._dirs = dirs
        self._futures = futures
        self._clock = clock
        self._settings = settings
        self._found_futures: list[FoundFuture] = []
        self._checkpoints: dict[LogDir, _Checkpoints] = {}
        self._bytes_recovered = 0

    @property
    def pending(self) -> bool:
        """Directories were surveyed, and `load` has not finished."""
        return bool(self._checkpoints)

    # Which logs there are

    def survey(self) -> None:
        """LogDirConfigError if a partition is in two directories, or has an old record format."""
        futures: list[tuple[LogDir, str]] = []
        deleted_ids: set[str] = set()
        for log_dir in self._dirs.online:
            try:
                self._survey_dir(log_dir, futures, deleted_ids)
            except OSError as error:
                log_dir.fail(error)
        self._found_futures = self._futures.settle(
            futures, deleted_ids, self.found, all_online=not self._dirs.offline
        )

    def _survey_dir(
        self, log_dir: LogDir, futures: list[tuple[LogDir, str]], deleted_ids: set[str]
    ) -> None:
        """Note the logs of a directory; its future and deleted logs are added to the lists."""
        read = log_dir.checkpoints.read
        self._checkpoints[log_dir] = _Checkpoints(
            read(checkpoints.RECOVERY_POINT),
            read(checkpoints.LOG_START_OFFSET),
            read(checkpoints.HIGH_WATERMARK),
            read(checkpoints.CLEANER_OFFSET),
        )
        now_ms = self._clock.now_ms()
        for entry in log_dir.disk.scan(log_dir.path):
            if not entry.is_dir:
                continue
            if is_delete_dir(entry.name):
                log_dir.remove_later(f"{log_dir.path}/{entry.name}", now_ms)
                deleted_ids.add(dir_id(entry.name))
                continue
            if entry.name.endswith(FUTURE_DIR):
                require_current_format(log_dir.disk, f"{log_dir.path}/{entry.name}")
                futures.append((log_dir, entry.name))
                continue
            topic_partition = parse_dir_name(entry.name)
            if topic_partition is None or topic_partition.topic == METADATA_TOPIC:
                continue
            require_current_format(log_dir.disk, f"{log_dir.path}/{entry.name}")
            other = self.found.get(topic_partition)
            if other is not None:
                raise LogDirConfigError(
                    f"log.dirs: {topic_partition} is in both {other.path} and {log_dir.path}"
                )
            self.found[topic_partition] = log_dir

    # Opening them

    def load(
        self,
        adopt: Callable[[Log], None],
        report: Callable[[str], None],
        config_of: Callable[[TopicPartition], LogConfig],
    ) -> None:
        """Open every log found, several at a time, and hand it to `adopt`, in a loading thread.

        `report` is called with the progress, e.g. "200 of 5000 logs loaded, 64 MB recovered".
        """
        threads = self._settings.recovery_threads_per_dir * len(self._dirs.all)
        total = len(self.found)
        with ThreadPoolExecutor(threads, thread_name_prefix="log-load") as pool:
            jobs = list(self._submit(pool, adopt, config_of))
            for count, job in enumerate(as_completed(jobs), 1):
                job.result()
                if count % (total // 100 + 1) == 0 or count == total:
                    recovered = self._bytes_recovered // 1_000_000
                    report(f"{count} of {total} logs loaded, {recovered} MB recovered")
        for log_dir in self._dirs.online:
            log_dir.checkpoints.write(checkpoints.RECOVERY_POINT)
        self._checkpoints.clear()

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        adopt: Callable[[Log], None],
        config_of: Callable[[TopicPartition], LogConfig],
    ) -> Iterator[Future[None]]:
        def open_and_adopt(topic_partition: TopicPartition, config: LogConfig) -> None:
            log = self.open_found(topic_partition, config)
            if log is not None:
                adopt(log)

        for topic_partition in sorted(self.found):
            yield pool.submit(open_and_adopt, topic_partition, config_of(topic_partition))
        for future in self._found_futures:
            yield pool.submit(self._open_future, future, config_of(future.topic_partition))

    def open_found(self, topic_partition: TopicPartition, config: LogConfig) -> Log | None:
        """None if its directory fails; the logs of the others are loaded all the same."""
        log = self._open(topic_partition, self.found[topic_partition], config)
        self.found.pop(topic_partition, None)
        return log

    def _open_future(self, found: FoundFuture, config: LogConfig) -> None:
        copy = self._open(found.topic_partition, found.log_dir, config, found.path)
        if copy is not None:
            self._futures.logs[found.topic_partition] = copy

    def _open(
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
            producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
            on_segment_recovered=self._count_recovered,
        )
        try:
            log_dir.check()
            now_ms = self._clock.now_ms()
            log = load_log(log_dir, topic_partition, config, options, now_ms, directory)
        except OSError as error:
            failed = log_dir.fail(error)
            if not failed.offline:
                raise failed from error  # `ulimit -n` is too low to start
            return None
        except LogDirError:
            return None
        high_watermark = known.high_watermarks.get(topic_partition, 0)
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log.cleaned_offset = known.cleaner_offsets.get(topic_partition, -1)
        log_dir.logs.add(log)
        return log

    def _count_recovered(self, size: int) -> None:
        self._bytes_recovered += size
