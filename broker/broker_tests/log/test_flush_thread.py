"""flush runs in a worker thread while the event loop's thread appends, rolls and truncates."""

import threading
from pathlib import Path
from random import Random

import pytest

from broker_tests.log.support import NOW_MS, SETTINGS, TOPIC_ID, TP, append, commit, read_all, roll
from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.log.segment import LogSegment
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk

CONFIG = LogConfig(segment_bytes=2000, retention_bytes=20_000, file_delete_delay_ms=0)


def test_flush_in_a_thread_while_appends_and_reads_go_on(tmp_path: Path) -> None:
    manager = LogManager([str(tmp_path)], RealDisk(), SystemClock(), SETTINGS)
    log = manager.get_or_create(TP, TOPIC_ID, CONFIG)
    done = threading.Event()
    failures: list[BaseException] = []

    def flush_on_and_on() -> None:
        while not done.is_set():
            try:
                log.flush()
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=flush_on_and_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    rng = Random(20251116)
    try:
        for number in range(3000):
            append(log, "x" * rng.randrange(300), leader_epoch=number // 10)
            action = rng.random()
            if action < 0.01:
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - rng.randrange(40)))
            elif action < 0.02:
                log.delete_old_segments(NOW_MS)
                log.log_dir.remove(log.log_dir.take_due_removals(NOW_MS))
            assert log.recovery_point <= log.written_offset
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
    log.flush()
    log.validate()
    assert log.recovery_point == log.log_end_offset
    assert all(segment.synced for segment in log.segments[:-1])
    assert len(read_all(log)) == log.log_end_offset - log.log_start_offset
    manager.close()


class Interrupted:
    """Runs an action in the middle of the flush, after the fsync of a segment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: str, log: Log) -> None:
        real = LogSegment.sync

        def sync(segment: LogSegment) -> None:
            real(segment)
            monkeypatch.setattr(LogSegment, "sync", real)
            getattr(self, action)(log)

        monkeypatch.setattr(LogSegment, "sync", sync)

    def roll(self, log: Log) -> None:
        roll(log)

    def append(self, log: Log) -> None:
        append(log, "later")

    def truncate(self, log: Log) -> None:
        log.truncate_to(1)
        append(log, "other")
        append(log, "lineage")
        commit(log)


def flushed_with(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Log, LogManager]:
    manager = LogManager([str(tmp_path)], RealDisk(), SystemClock(), SETTINGS)
    log = manager.get_or_create(TP, TOPIC_ID, CONFIG)
    for value in "abc":
        append(log, value)
    Interrupted(monkeypatch, action, log)
    log.flush()
    return log, manager


def test_an_append_during_the_flush_is_not_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, manager = flushed_with("append", tmp_path, monkeypatch)
    assert (log.recovery_point, log.written_offset) == (3, 4)
    manager.close()


def test_a_roll_during_the_flush_leaves_the_old_segment_to_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its indexes were completed after the fsync."""
    log, manager = flushed_with("roll", tmp_path, monkeypatch)
    assert log.recovery_point == 2
    log.flush()
    assert log.recovery_point == 3
    manager.close()


def test_a_truncation_during_the_flush_invalidates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new bytes at the same offsets were not synced."""
    log, manager = flushed_with("truncate", tmp_path, monkeypatch)
    assert log.written_offset == 3
    assert log.recovery_point <= 1
    manager.close()
