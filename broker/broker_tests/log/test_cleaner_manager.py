"""Choosing, threads, failures, and everything that may happen to a log while it is cleaned."""

import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_tests.log.compaction import CONFIG, CompactedLog, Direct
from broker_tests.log.support import TOPIC_ID, commit, read_all
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.batches import scan_batches
from odradek_broker.log.cleanable import find_cleanable
from odradek_broker.log.cleaner_manager import (
    FAILURES_MAX,
    CleanerConfig,
    CleanerManager,
)
from odradek_broker.log.cleaner_run import CleanerRun, CleaningAbortedError, Limits
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log import Log
from odradek_broker.log.offset_map import OffsetMap
from odradek_broker.log.throttle import Throttle
from odradek_broker.runtime.disk import Disk, RealDisk
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.records import Record, build_batch

WAIT_SECONDS = 20.0
FAST = CleanerConfig(dedupe_buffer_size=1 << 20, backoff_ms=1)
LIMITS = Limits(1 << 20, 0.9, 256)


class Loop:
    """An event loop that runs only when the test says so, in the test's thread."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue()

    def call_soon(self, function: Callable[[], None]) -> None:
        self._queue.put(function)

    def run_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not done():
            assert time.monotonic() < deadline
            try:
                function = self._queue.get(timeout=0.05)
            except queue.Empty:
                continue
            function()

    def wait_for_a_call(self) -> None:
        """Then the (only) thread waits, too."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._queue.empty():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def run_one(self) -> None:
        self._queue.get(timeout=WAIT_SECONDS)()


class Cleaning:
    """A manager over the logs of a `CompactedLog`, stopped at the end of the test."""

    def __init__(self, log: CompactedLog, config: CleanerConfig = FAST) -> None:
        self.log = log
        self.loop = Loop()
        self.config = config
        self.manager = CleanerManager(
            log.manager.logs, lambda: self.config, log.clock, self.loop.call_soon
        )

    def run_until(self, done: Callable[[], bool]) -> None:
        self.loop.run_until(done)

    @property
    def runs(self) -> int:
        return self.manager.metrics().runs


@pytest.fixture
def cleanings() -> Iterator[Callable[..., Cleaning]]:
    started: list[Cleaning] = []

    def start(log: CompactedLog, config: CleanerConfig = FAST) -> Cleaning:
        cleaning = Cleaning(log, config)
        started.append(cleaning)
        cleaning.manager.start()
        return cleaning

    yield start
    for cleaning in started:
        cleaning.manager.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("log-cleaner")]


def dirty_log(
    disk: Disk | None = None, batches: int = 40, directory: str = "/data"
) -> CompactedLog:
    log = CompactedLog(disk or SimDisk(), directory=directory)
    for number in range(batches):
        log.write([("abc"[number % 3], "v" * 50), (f"only-{number}", "w")])
    log.roll()
    return log


def files(log: CompactedLog, *suffixes: str) -> list[str]:
    return [e.name for e in log.disk.scan(log.log.dir) if e.name.endswith(suffixes)]


# The usual course


def test_a_dirty_log_is_cleaned_and_the_checkpoint_says_so(cleanings: Any) -> None:
    log = dirty_log()
    before = log.log.size_bytes
    cleaning = cleanings(log)
    cleaning.run_until(lambda: cleaning.runs == 1)
    assert log.log.size_bytes < before
    assert log.log.cleaned_offset == log.log_end
    assert log.disk.read("/data/cleaner-offset-checkpoint") == b"0\n1\norders 0 80\n"
    log.verify()
    metrics = cleaning.manager.metrics()
    assert metrics.bytes_read == before
    assert 0 < metrics.bytes_written < before
    assert metrics.cleaner_recopy_percent == 100 * metrics.bytes_written // before
    assert metrics.max_dirty_percent == 100
    assert metrics.max_buffer_utilization_percent > 0
    assert metrics.dead_thread_count == 0
    assert not metrics.uncleanable_partitions


def test_what_is_written_later_is_cleaned_later(cleanings: Any) -> None:
    log = dirty_log()
    cleaning = cleanings(log)
    cleaning.run_until(lambda: cleaning.runs == 1)
    log.write([("a", "new")])
    log.roll()
    cleaning.run_until(lambda: cleaning.runs == 2)
    log.verify()
    assert [r.value for r in read_all(log.log) if r.key == b"a"] == [b"new"]


def test_the_dirtiest_log_comes_first_and_topics_that_are_not_compacted_never(
    cleanings: Any,
) -> None:
    log = dirty_log(batches=30)
    log.clean()
    log.write([("a", "x")])
    log.roll()  # mostly clean now
    others = {}
    for name, config in (("dirty", CONFIG), ("plain", replace(CONFIG, cleanup_compact=False))):
        other = log.manager.get_or_create(TopicPartition(name, 0), TOPIC_ID, config)
        for _ in range(20):
            record = Record(0, log.clock.now_ms(), b"k", b"v" * 50)
            other.append_as_leader(bytearray(build_batch([record])), 0, log.clock.now_ms())
            commit(other)
        others[name] = other
    order: list[Log] = []
    cleaning = cleanings(log)

    def note() -> bool:
        for one in (log.log, *others.values()):
            if one.cleaned_offset == one.active.base_offset and one not in order:
                order.append(one)
        return bool(cleaning.runs == 2)

    cleaning.run_until(note)
    assert order == [others["dirty"], log.log]
    assert others["plain"].cleaned_offset == -1


def test_several_threads_clean_several_logs(cleanings: Any, tmp_path: Path) -> None:
    """On the real disk: the simulated one knows only one thread."""
    log = dirty_log(RealDisk(), directory=str(tmp_path))
    for number in range(6):
        other = log.manager.get_or_create(TopicPartition("t", number), TOPIC_ID, CONFIG)
        for _ in range(30):
            record = Record(0, log.clock.now_ms(), b"k", b"v" * 50)
            other.append_as_leader(bytearray(build_batch([record])), 0, log.clock.now_ms())
            commit(other)
    cleaning = cleanings(log, replace(FAST, threads=3))
    cleaning.run_until(lambda: cleaning.runs == 7)
    log.verify()
    assert all(one.cleaned_offset > 0 for one in log.manager.logs.values())


def test_settings_by_kafkas_names() -> None:
    settings = Settings(
        {
            "log.cleaner.threads": "4",
            "log.cleaner.dedupe.buffer.size": "8388608",
            "log.cleaner.io.buffer.size": "80000",
            "log.cleaner.io.max.bytes.per.second": "1e6",
            "log.cleaner.backoff.ms": "7",
            "log.cleaner.io.buffer.load.factor": "0.5",
        }
    )
    config = CleanerConfig.of(settings)
    assert config == CleanerConfig(True, 4, 8 << 20, 0.5, 80_000, 1e6, 7)
    assert config.limits == Limits(2 << 20, 0.5, 10_000)


def test_threads_and_switch_follow_the_settings(cleanings: Any) -> None:
    log = dirty_log()
    cleaning = cleanings(log, replace(FAST, enable=False))
    assert not cleaning.manager._threads
    cleaning.config = replace(FAST, threads=2)
    cleaning.manager.reconfigure()
    assert len(cleaning.manager._threads) == 2
    cleaning.run_until(lambda: cleaning.runs == 1)


# What may happen meanwhile


def interrupted(log: CompactedLog, at_bytes: int, event: Callable[[], object]) -> CleanerRun:
    """A run during which `event` happens on the loop, after so many bytes of work."""
    done = 0

    def pace(number: int) -> None:
        nonlocal done
        if done < at_bytes <= done + number:
            event()
        done += number

    now_ms = log.clock.now_ms()
    return CleanerRun(find_cleanable(log.log, now_ms), LIMITS, Direct(), pace, now_ms)


# While the map is filled, while the first segment is rewritten, and while a later one is.
MOMENTS = (1000, 5500, 8000)


@pytest.mark.parametrize("at_bytes", MOMENTS)
def test_truncation_ends_a_run(at_bytes: int) -> None:
    log = dirty_log()
    cut = log.log.segments[3].base_offset + 2

    def truncate() -> None:
        log.log.truncate_to(cut)
        log.log_end = log.log.log_end_offset
        for offset in [offset for offset in log.written if offset >= log.log_end]:
            del log.written[offset]

    run = interrupted(log, at_bytes, truncate)
    with pytest.raises((CleaningAbortedError, OSError)):
        run.run()
    assert run.outdated
    assert not files(log, ".cleaned", ".swap")
    log.verify()
    log.write([("a", "other")])
    log.roll()
    log.clean()
    log.verify()
    log.reopen()
    log.verify()


@pytest.mark.parametrize("at_bytes", MOMENTS)
def test_deletion_of_the_topic_ends_a_run(at_bytes: int) -> None:
    log = dirty_log()
    run = interrupted(log, at_bytes, lambda: log.manager.delete(log.log.topic_partition))
    with pytest.raises((CleaningAbortedError, FileNotFoundError)):
        run.run()
    assert run.outdated
    assert log.manager.dirs[0].failure is None
    # A topic of the same name is another one.
    new = log.manager.get_or_create(log.log.topic_partition, TOPIC_ID, CONFIG)
    assert new.cleaned_offset == -1


@pytest.mark.parametrize("at_bytes", MOMENTS)
def test_retention_of_the_same_log_ends_a_run_if_it_took_segments_of_it(at_bytes: int) -> None:
    """A moved log start alone does no harm."""
    log = dirty_log()
    start = log.log.segments[3].base_offset

    def delete_records() -> None:
        log.log.advance_log_start_offset(start)
        assert log.log.delete_old_segments(log.clock.now_ms()) > 0

    run = interrupted(log, at_bytes, delete_records)
    with pytest.raises(CleaningAbortedError):
        run.run()
    assert not files(log, ".cleaned", ".swap")
    values_before = {r.key: r.value for r in read_all(log.log)}
    log.clean()
    assert {r.key: r.value for r in read_all(log.log)} == values_before
    assert log.log.log_start_offset == start


def test_appends_and_rolls_go_on(cleanings: Any) -> None:
    log = dirty_log()
    run = interrupted(
        log, 6000, lambda: [log.write([("a", "z" * 100)]) for _ in range(10)] and None
    )
    run.run()
    log.verify()
    assert len(log.log.segments) > 2


def test_a_new_topic_does_not_inherit_the_checkpoint_of_a_deleted_one() -> None:
    log = dirty_log()
    log.clean()
    assert b"orders 0 80" in log.disk.read("/data/cleaner-offset-checkpoint")
    log.manager.delete(log.log.topic_partition)
    assert log.disk.read("/data/cleaner-offset-checkpoint") == b"0\n0\n"


# Failures


def test_a_damaged_log_is_tried_three_times_and_then_left_alone(
    cleanings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Others go on being cleaned, and nothing of the damaged one is touched."""
    log = dirty_log()
    victim = log.log.segments[2]
    victim.file().pwritev([b"\xff"], 40)
    other = log.manager.get_or_create(TopicPartition("other", 0), TOPIC_ID, CONFIG)
    for _ in range(20):
        record = Record(0, log.clock.now_ms(), b"k", b"v" * 50)
        other.append_as_leader(bytearray(build_batch([record])), 0, log.clock.now_ms())
        commit(other)
    segments = log.log.segments
    cleaning = cleanings(log)
    with caplog.at_level(logging.WARNING):
        cleaning.run_until(lambda: bool(cleaning.manager.metrics().uncleanable_partitions))
        cleaning.run_until(lambda: cleaning.runs == 1)
    metrics = cleaning.manager.metrics()
    assert metrics.uncleanable_partitions == {"/data": 1}
    assert metrics.uncleanable_bytes == {"/data": sum(s.size for s in segments[:-1])}
    assert metrics.runs_failed == FAILURES_MAX
    assert metrics.dead_thread_count == 0
    assert log.log.segments == segments
    assert not files(log, ".cleaned")
    assert log.manager.dirs[0].failure is None
    assert "not cleaned any more until the broker restarts" in caplog.text
    # A deleted log is not counted any more.
    log.manager.delete(log.log.topic_partition)
    cleaning.run_until(lambda: not cleaning.manager.metrics().uncleanable_partitions)


def test_a_full_disk_is_no_reason_to_take_the_directory_offline(cleanings: Any) -> None:
    """1. There is no room for the new segment: the run fails and leaves nothing behind.
    2. There is room again: the next run succeeds."""
    disk = SimDisk()
    log = dirty_log(disk)
    used = disk.capacity_bytes - disk.usage("/").usable_bytes
    disk.capacity_bytes = used + 200  # enough for checkpoints
    cleaning = cleanings(log)
    cleaning.run_until(lambda: cleaning.manager.metrics().runs_failed == 1)
    disk.capacity_bytes = 1 << 40
    assert not files(log, ".cleaned")
    assert log.manager.dirs[0].failure is None
    cleaning.run_until(lambda: cleaning.runs == 1)
    log.verify()
    assert not cleaning.manager.metrics().uncleanable_partitions


def test_a_broken_disk_takes_its_directory_offline(cleanings: Any) -> None:
    disk = SimDisk()
    log = dirty_log(disk)
    disk.fail(f"{log.log.segments[1].path()}", errno.EIO)
    cleaning = cleanings(log)
    cleaning.run_until(lambda: log.manager.dirs[0].failure is not None)
    with pytest.raises(LogDirError):
        log.log.read(0, 100, 100)
    metrics = cleaning.manager.metrics()
    assert (metrics.runs, metrics.dead_thread_count) == (0, 0)


def test_a_bug_does_not_end_a_thread(
    cleanings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = dirty_log()
    look = CleanerManager._look
    failures = iter([True, True])

    def buggy(self: CleanerManager, now_ms: int) -> object:
        if next(failures, False):
            raise ZeroDivisionError
        return look(self, now_ms)

    monkeypatch.setattr(CleanerManager, "_look", buggy)
    cleaning = cleanings(log)
    cleaning.run_until(lambda: cleaning.runs == 1)
    assert caplog.text.count("unexpected error, continuing") == 2


# Stopping


def test_stop_gives_up_a_run_that_waits_for_the_loop() -> None:
    """1. The thread wants to swap a segment in and waits for the loop's thread.
    2. That one calls `stop`: nobody waits for ever, the log is as it was."""
    log = dirty_log()
    cleaning = Cleaning(log)
    cleaning.manager.start()
    segments = log.log.segments
    cleaning.loop.wait_for_a_call()
    while not files(log, ".cleaned"):
        cleaning.loop.run_one()
        cleaning.loop.wait_for_a_call()
    cleaning.manager.stop()
    assert log.log.segments == segments
    assert not files(log, ".cleaned", ".swap")
    cleaning.loop.run_one()  # too late: does nothing
    assert log.log.segments == segments
    log.verify()


def test_stop_ends_a_thread_that_is_throttled() -> None:
    log = dirty_log()
    cleaning = Cleaning(log, replace(FAST, io_max_bytes_per_second=1.0))
    cleaning.manager.start()
    cleaning.run_until(lambda: bool(cleaning.manager._in_progress))
    cleaning.manager.stop()  # at this rate, a pass would take hours
    assert not cleaning.manager._threads[0].is_alive()


def test_stop_ends_a_thread_that_has_nothing_to_do() -> None:
    log = CompactedLog(SimDisk())
    cleaning = Cleaning(log, replace(FAST, backoff_ms=3_600_000))
    cleaning.manager.start()
    log.clock.advance(10)
    cleaning.run_until(lambda: cleaning.manager.metrics().time_since_last_run_ms == 0)
    cleaning.manager.stop()
    assert not cleaning.manager._threads[0].is_alive()


def test_a_closed_loop_ends_the_threads() -> None:
    def closed(_function: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    manager = CleanerManager({}, lambda: FAST, CompactedLog(SimDisk()).clock, closed)
    manager.start()
    manager._threads[0].join(WAIT_SECONDS)
    assert not manager._threads[0].is_alive()


# Throttle


def test_the_throttle_spreads_bytes_over_time() -> None:
    now_ms = 0.0
    waits: list[float] = []

    def wait(seconds: float) -> None:
        nonlocal now_ms
        waits.append(seconds)
        now_ms += 1000 * seconds

    throttle = Throttle(1000, lambda: now_ms, wait)
    for _ in range(4):
        throttle.take(500)
    assert waits == [0.5, 0.5, 0.5]
    now_ms += 10_000
    throttle.take(1)  # idle time is not saved up, nor held against anyone
    assert len(waits) == 3
    throttle.bytes_per_second = float("inf")
    throttle.take(10**12)
    throttle.take(10**12)
    assert sum(waits) < 1.6


# Memory


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_a_map_of_128_mb_costs_only_what_is_used() -> None:
    """The default budget must not make a small broker large."""

    def resident_bytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    offset_map = OffsetMap(128 * 1024**2, 0.9)
    offset_map.put([b"%d" % number for number in range(1000)], range(1000))
    assert resident_bytes() - before < 16 * 1024**2
    offset_map.close()


def test_sealed_segments_are_read_in_pieces_of_the_buffer_size() -> None:
    """However large a segment is; only a batch that is larger is read as a whole."""
    log = dirty_log()
    segment = log.log.segments[0]
    largest = 0

    class Watched:
        def pread(self, length: int, position: int) -> bytes:
            nonlocal largest
            largest = max(largest, length)
            return segment.file().pread(length, position)

    for _ in scan_batches(Watched(), "", 0, segment.size, 200):  # type: ignore[arg-type]
        pass
    assert largest == 200
