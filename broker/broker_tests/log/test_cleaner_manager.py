"""The choice of logs, threads, failures and the end of the cleaner."""

import errno
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_tests.log.cleaning import FAST, WAIT_SECONDS, Cleaning, dirty_log, files
from broker_tests.log.compaction import CONFIG, CompactedLog
from broker_tests.log.support import TOPIC_ID, commit, read_all
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.cleaner_manager import (
    FAILURES_MAX,
    CleanerConfig,
    CleanerManager,
)
from odradek_broker.log.cleaner_run import CleaningLimits
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log import Log
from odradek_broker.runtime.disk import RealDisk
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.records import Record, build_batch


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


# Without failures


def test_a_dirty_log_is_cleaned_and_the_checkpoint_says_so(
    cleanings: Callable[..., Cleaning],
) -> None:
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


def test_a_log_is_cleaned_again_after_new_writes(cleanings: Callable[..., Cleaning]) -> None:
    log = dirty_log()
    cleaning = cleanings(log)
    cleaning.run_until(lambda: cleaning.runs == 1)
    log.write([("a", "new")])
    log.roll()
    cleaning.run_until(lambda: cleaning.runs == 2)
    log.verify()
    assert [r.value for r in read_all(log.log) if r.key == b"a"] == [b"new"]


def test_the_dirtiest_log_comes_first_and_topics_that_are_not_compacted_never(
    cleanings: Callable[..., Cleaning],
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


def test_several_threads_clean_several_logs(
    cleanings: Callable[..., Cleaning], tmp_path: Path
) -> None:
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
    assert config.limits == CleaningLimits(2 << 20, 0.5, 10_000)


def test_threads_and_switch_follow_the_settings(cleanings: Callable[..., Cleaning]) -> None:
    log = dirty_log()
    cleaning = cleanings(log, replace(FAST, enable=False))
    assert not cleaning.manager._threads
    cleaning.config = replace(FAST, threads=2)
    cleaning.manager.reconfigure()
    assert len(cleaning.manager._threads) == 2
    cleaning.run_until(lambda: cleaning.runs == 1)


# Failures


def test_a_damaged_log_is_tried_three_times_and_then_left_alone(
    cleanings: Callable[..., Cleaning], caplog: pytest.LogCaptureFixture
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


def test_a_full_disk_is_no_reason_to_take_the_directory_offline(
    cleanings: Callable[..., Cleaning],
) -> None:
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


def test_a_broken_disk_takes_its_directory_offline(cleanings: Callable[..., Cleaning]) -> None:
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
    cleanings: Callable[..., Cleaning],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
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
    """1. The cleaner thread waits for the loop's thread, to swap a segment in.
    2. The loop's thread calls `stop`: both continue, and the log is unchanged."""
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
