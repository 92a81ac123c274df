"""Periodic work on all logs: retention, flushing, checkpoints, delayed removal.

`tick` runs in the event loop's thread and does the part that only touches memory and renames
files. It yields what may block for long (fsync, unlink of a gigabyte) as jobs for a thread.
Example: a tick 60 s after the last recovery-point checkpoint yields one job per directory, which
writes the next one.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from odradek_broker.log.checkpoints import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.model.log_config import LONG_MAX
from odradek_broker.runtime.descriptors import SEGMENT_FILES_MAX
from odradek_broker.runtime.settings import Settings

Job = Callable[[], None]

# Retention may have to read the time index of a segment: 200 logs take about 10 ms of the loop.
RETENTION_LOGS_PER_TICK = 200


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Broker settings of the log layer; names and defaults are Kafka's where it has them."""

    cluster_id: str | None = None  # None: that of the directories, or a new one
    node_id: int = 0
    recovery_threads_per_dir: int = 2  # num.recovery.threads.per.data.dir
    retention_check_interval_ms: int = 300_000  # log.retention.check.interval.ms
    flush_check_interval_ms: int = 1_000  # log.flush.scheduler.interval.ms, but not "never"
    recovery_point_interval_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    log_start_interval_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    high_watermark_interval_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    producer_id_expiration_ms: int = 86_400_000  # producer.id.expiration.ms
    producer_id_check_interval_ms: int = 600_000  # producer.id.expiration.check.interval.ms
    reserve_bytes: int = 0  # odradek.log.dir.reserve.bytes; 0: none
    open_files_max: int = SEGMENT_FILES_MAX  # kept open, as far as `ulimit -n` allows

    @staticmethod
    def of(settings: Settings) -> "LogSettings":
        return LogSettings(
            # Empty: that of the directories, or a new one for a new cluster.
            cluster_id=settings.optional_str("odradek.cluster.id") or "",
            node_id=settings.node_id,
            recovery_threads_per_dir=settings.int("num.recovery.threads.per.data.dir"),
            retention_check_interval_ms=settings.int("log.retention.check.interval.ms"),
            recovery_point_interval_ms=settings.int("log.flush.offset.checkpoint.interval.ms"),
            log_start_interval_ms=settings.int("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermark_interval_ms=settings.int(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
            producer_id_expiration_ms=settings.int("producer.id.expiration.ms"),
            reserve_bytes=settings.int("odradek.log.dir.reserve.bytes"),
        )


# Checked without a pause: about 5 ms.
LOGS_AT_ONCE = 5000


class Housekeeping:
    def __init__(self, dirs: Sequence[LogDir], settings: LogSettings) -> None:
        self._dirs = dirs
        self._settings = settings
        self._next_ms: dict[str, int] = {}
        self._to_retain: deque[Log] = deque()
        # A sealed segment is being flushed: the next tick writes the checkpoint that says so.
        self._rolled = False

    def tick(self, now_ms: int) -> Iterator[Job]:
        """Yields one job after another, so that the caller can do other work in between: with
        50,000 logs each pass over all of them takes about 20 ms."""
        settings = self._settings
        retention = self._due("retention", settings.retention_check_interval_ms, now_ms)
        flush = self._due("flush", settings.flush_check_interval_ms, now_ms)
        expire = self._due("producers", settings.producer_id_check_interval_ms, now_ms)
        recovery_points = (
            self._due("recovery", settings.recovery_point_interval_ms, now_ms) or self._rolled
        )
        self._rolled = False
        log_starts = self._due("start", settings.log_start_interval_ms, now_ms)
        high_watermarks = self._due("hw", settings.high_watermark_interval_ms, now_ms)
        for log_dir in self._dirs:
            if log_dir.failure is not None:
                continue
            if retention:
                self._to_retain.extend(log_dir.logs)
            if flush:
                yield from self._flush_jobs(log_dir, now_ms)
            if expire:
                for log in log_dir.logs:
                    log.producers.expire(now_ms, settings.producer_id_expiration_ms)
            if recovery_points:
                yield log_dir.checkpoints.prepare(RECOVERY_POINT)
            if log_starts:
                yield log_dir.checkpoints.prepare(LOG_START_OFFSET)
            if high_watermarks:
                yield log_dir.checkpoints.prepare(HIGH_WATERMARK)
            due = log_dir.take_due_removals(now_ms)
            if due:
                yield partial(log_dir.remove, due)
        self._apply_retention(now_ms)

    def _due(self, what: str, interval_ms: int, now_ms: int) -> bool:
        """The first tick only starts the interval: nothing is due right after the start."""
        next_ms = self._next_ms.get(what)
        if next_ms is not None and now_ms < next_ms:
            return False
        self._next_ms[what] = now_ms + interval_ms
        return next_ms is not None

    def _apply_retention(self, now_ms: int) -> None:
        for _ in range(min(RETENTION_LOGS_PER_TICK, len(self._to_retain))):
            log = self._to_retain.popleft()
            if not log.removed:
                with suppress(LogDirError):
                    log.delete_old_segments(now_ms)

    def _flush_jobs(self, log_dir: LogDir, now_ms: int) -> Iterator[Job]:
        """A sealed segment is synced soon after the roll, as Kafka does; else as settings ask."""
        for at, log in enumerate(list(log_dir.logs), 1):
            segments, config = log.segments, log.config
            rolled = len(segments) > 1 and not segments[-2].synced
            self._rolled |= rolled
            asked = config.flush_messages != LONG_MAX or config.flush_ms != LONG_MAX
            if rolled or (asked and log.flush_due(now_ms)):
                yield partial(log.flush, now_ms)
            elif at % LOGS_AT_ONCE == 0:
                yield _nothing


def _nothing() -> None:
    """A job that only makes the caller return to the event loop."""
