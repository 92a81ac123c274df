"""Compaction in the background: threads clean the dirtiest log, then the next one.

    cleaner = CleanerManager(logs.logs, lambda: CleanerConfig.of(settings), clock,
                             loop.call_soon_threadsafe)
    cleaner.start()                 after the logs are loaded
    cleaner.reconfigure()           after a setting changed; the next runs use it
    cleaner.metrics()               in the loop's thread
    await to_thread(cleaner.stop)   before the logs are closed; aborts runs, joins threads

Each of the `log.cleaner.threads` threads takes the dirtiest log that no other thread cleans,
cleans it (`cleaner_run.py`), and sleeps for `log.cleaner.backoff.ms` when there is none. All
state here belongs to the loop's thread; the threads reach it through `LoopCalls`.

No error ends a thread. A log whose cleaning fails three times in a row is not cleaned again until
the next start; the log file and the metrics say so, and other logs are still cleaned.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek_broker.log.cleanable import Cleanable, find_cleanable
from odradek_broker.log.cleaner import CleanerStats
from odradek_broker.log.cleaner_run import CleanerRun, CleaningAbortedError, CleaningLimits
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log import Log
from odradek_broker.log.loop_calls import LoopCalls, LoopStoppedError
from odradek_broker.log.throttle import Throttle
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import TopicPartition

logger = logging.getLogger(__name__)

# A short problem (a full disk) must not end compaction; a damaged log must not be retried for ever.
FAILURES_MAX = 3
# Only one thread at a time runs Python: after this many bytes a cleaner yields to the loop.
SLICE_SECONDS = 0.001
# Long enough for the operating system to run the other thread.
YIELD_SECONDS = 0.000_05
STOP_TIMEOUT_SECONDS = 30.0
# Errors of the process, not of the log directory; a retry may succeed.
_PASSING_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Kafka's `log.cleaner.*`, with its defaults. Buffers are for all threads together."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 128 * 1024**2
    io_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 * 1024
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000

    @classmethod
    def of(cls, settings: Settings) -> "CleanerConfig":
        return cls(
            settings.bool("log.cleaner.enable"),
            settings.int("log.cleaner.threads"),
            settings.int("log.cleaner.dedupe.buffer.size"),
            settings.float("log.cleaner.io.buffer.load.factor"),
            settings.int("log.cleaner.io.buffer.size"),
            settings.float("log.cleaner.io.max.bytes.per.second"),
            settings.int("log.cleaner.backoff.ms"),
        )

    @property
    def limits(self) -> CleaningLimits:
        """Limits of each thread."""
        threads = max(1, self.threads)
        return CleaningLimits(
            self.dedupe_buffer_size // threads,
            self.io_buffer_load_factor,
            max(1, self.io_buffer_size // threads // 2),
        )


class CleanerMetrics(NamedTuple):
    """Kafka's LogCleaner and LogCleanerManager metrics, and totals since the start."""

    max_dirty_percent: int  # of the dirtiest log, at the last check
    time_since_last_run_ms: int  # since the last check
    cleaner_recopy_percent: int  # bytes written of 100 read, in each thread's last run
    max_clean_time_secs: float  # the longest of these runs
    max_buffer_utilization_percent: float
    max_compaction_delay_secs: float  # past max.compaction.lag.ms
    dead_thread_count: int
    uncleanable_partitions: Mapping[str, int]  # by log directory
    uncleanable_bytes: Mapping[str, int]
    runs: int
    runs_aborted: int
    runs_failed: int
    bytes_read: int
    bytes_written: int
    records_without_key: int


class CleanerManager:
    """Invariants:
    _in_progress: logs that a thread is cleaning
    _failures: logs whose last runs failed, and how many did; uncleanable from FAILURES_MAX on
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        config: Callable[[], CleanerConfig],
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`call_soon` is the loop's thread-safe one; `config` is called for each run."""
        self._logs = logs
        self._config = config
        self._clock = clock
        self._loop = LoopCalls(call_soon)
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._throttle = Throttle(float("inf"), clock.monotonic_ms, self._stopping.wait)
        self._threads: list[threading.Thread] = []
        self._in_progress: set[Log] = set()
        self._failures: dict[Log, int] = {}
        self._last_stats: dict[int, CleanerStats] = {}  # by thread
        self._total = CleanerStats()
        self._runs = self._runs_aborted = self._runs_failed = 0
        self._last_look_ms = clock.now_ms()
        self._max_dirty_ratio = 0.0
        self._max_compaction_delay_ms = 0

    # Called by the owner, in the loop's thread (`stop` in any)

    def start(self) -> None:
        if self._config().enable:
            self._start_threads()

    def reconfigure(self) -> None:
        """Additional threads start at once; surplus ones become idle after their run."""
        self.start()
        self._awake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        self._loop.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                logger.error("%s does not stop", thread.name)

    def metrics(self) -> CleanerMetrics:
        uncleanable = [log for log in self._failures if self._is_uncleanable(log)]
        now_ms = self._clock.now_ms()
        last, total = list(self._last_stats.values()), self._total
        bytes_read = sum(stats.bytes_read for stats in last)
        bytes_written = sum(stats.bytes_written for stats in last)
        return CleanerMetrics(
            int(100 * self._max_dirty_ratio),
            now_ms - self._last_look_ms,
            100 * bytes_written // max(1, bytes_read),
            max((stats.seconds for stats in last), default=0.0),
            max((100 * stats.buffer_utilization for stats in last), default=0.0),
            self._max_compaction_delay_ms / 1000,
            sum(not thread.is_alive() for thread in self._threads),
            _sum_by_dir((log, 1) for log in uncleanable),
            _sum_by_dir((log, _cleanable_bytes(log, now_ms)) for log in uncleanable),
            self._runs,
            self._runs_aborted,
            self._runs_failed,
            total.bytes_read,
            total.bytes_written,
            total.records_without_key,
        )

    def _start_threads(self) -> None:
        for number in range(len(self._threads), self._config().threads):
            thread = threading.Thread(
                target=self._work, args=(number,), name=f"log-cleaner-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    # The threads

    def _work(self, number: int) -> None:
        pace = _Pace(self._throttle, self._stopping)
        while not self._stopping.is_set():
            try:
                if not self._clean_one(number, pace):
                    self._awake.wait(self._config().backoff_ms / 1000)
            except LoopStoppedError:
                return
            except Exception:
                # Our bug, if it ever happens; compaction must continue all the same.
                logger.exception("log cleaner thread %d: unexpected error, continuing", number)
                self._stopping.wait(self._config().backoff_ms / 1000)

    def _clean_one(self, number: int, pace: "_Pace") -> bool:
        """Clean the dirtiest log; False if none was dirty enough, or cleaning failed."""
        run = self._loop.call(lambda: self._begin(number, pace))
        if run is None:
            return False
        log = run.log
        logger.info("cleaning %s", log.dir)
        error: Exception | None = None
        try:
            run.run()
        except Exception as raised:
            error = raised
        self._loop.call(lambda: self._end(number, run, error))
        if isinstance(error, LoopStoppedError):
            raise error
        return error is None

    # Calls that the threads hand to the loop's thread

    def _begin(self, number: int, pace: "_Pace") -> CleanerRun | None:
        """Choose the dirtiest log that is due, and reserve it."""
        self._awake.clear()
        config = self._config()
        if number >= config.threads or not config.enable:
            return None
        self._throttle.bytes_per_second = config.io_max_bytes_per_second
        now_ms = self._clock.now_ms()
        candidates = self._look(now_ms)
        due = [cleanable for cleanable in candidates if cleanable.is_due]
        if not due:
            return None
        dirtiest = max(due, key=lambda cleanable: cleanable.ratio)
        self._in_progress.add(dirtiest.log)
        return CleanerRun(dirtiest, config.limits, self._loop, pace, now_ms)

    def _look(self, now_ms: int) -> list[Cleanable]:
        self._failures = {log: n for log, n in self._failures.items() if not log.removed}
        found = []
        for log in self._logs.values():
            if (
                not log.config.cleanup_compact
                or len(log.segments) == 1
                or log in self._in_progress
                or log.log_dir.failure is not None
                or not log.log_dir.room.fits(log.size_bytes)
                or self._is_uncleanable(log)
            ):
                continue
            try:
                found.append(find_cleanable(log, now_ms))
            except OSError as error:
                log.log_dir.fail(error)
            except Exception as error:
                self._count_failure(log, error)
        self._last_look_ms = now_ms
        self._max_dirty_ratio = max((one.ratio for one in found), default=0.0)
        self._max_compaction_delay_ms = max((one.compaction_delay_ms for one in found), default=0)
        return found

    def _end(self, number: int, run: CleanerRun, error: Exception | None) -> None:
        log = run.log
        self._in_progress.discard(log)
        if error is None:
            self._failures.pop(log, None)
            self._count_run(number, run.stats)
            logger.info("cleaned %s: %s", log.dir, run.stats.summary())
        elif isinstance(error, LoopStoppedError | LogDirError):
            pass  # already logged where it happened
        elif isinstance(error, CleaningAbortedError) or run.outdated:
            self._runs_aborted += 1
            logger.info("%s: cleaning aborted, the log changed meanwhile", log.dir)
        elif isinstance(error, OSError) and error.errno not in _PASSING_ERRORS:
            log.log_dir.fail(error)
        else:
            self._count_failure(log, error)

    def _count_run(self, number: int, stats: CleanerStats) -> None:
        self._runs += 1
        self._last_stats[number] = stats
        self._total.bytes_read += stats.bytes_read
        self._total.bytes_written += stats.bytes_written
        self._total.records_without_key += stats.records_without_key

    def _count_failure(self, log: Log, error: Exception) -> None:
        self._runs_failed += 1
        failures = self._failures[log] = self._failures.get(log, 0) + 1
        if failures < FAILURES_MAX:
            logger.warning("%s: cleaning failed, retrying", log.dir, exc_info=error)
        else:
            logger.error(
                "%s: cleaning failed %d times; it is not cleaned any more until the broker "
                "restarts, and will grow",
                log.dir,
                failures,
                exc_info=error,
            )

    def _is_uncleanable(self, log: Log) -> bool:
        return self._failures.get(log, 0) >= FAILURES_MAX


class _Pace:
    """Called by a run after each piece of work: throttles it, and ends it when asked to."""

    def __init__(self, throttle: Throttle, stopping: threading.Event) -> None:
        self._throttle = throttle
        self._stopping = stopping
        self._bytes = 0
        self._slice_end = 0.0

    def __call__(self, number: int) -> None:
        self._bytes += number
        if time.perf_counter() < self._slice_end:
            return
        if self._stopping.is_set():
            raise LoopStoppedError
        self._throttle.take(self._bytes)
        self._bytes = 0
        time.sleep(YIELD_SECONDS)
        self._slice_end = time.perf_counter() + SLICE_SECONDS


def _sum_by_dir(numbers: Iterable[tuple[Log, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for log, number in numbers:
        sums[log.log_dir.path] = sums.get(log.log_dir.path, 0) + number
    return sums


def _cleanable_bytes(log: Log, now_ms: int) -> int:
    try:
        return find_cleanable(log, now_ms).cleanable_bytes
    except Exception:  # it is uncleanable for a reason
        return log.size_bytes
