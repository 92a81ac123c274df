"""Changes of a log while it is cleaned: a run ends, or goes on."""

from collections.abc import Callable

import pytest

from broker_tests.log.cleaning import dirty_log, files
from broker_tests.log.compaction import CONFIG, CompactedLog, Direct
from broker_tests.log.support import TOPIC_ID, read_all
from odradek_broker.log.cleanable import find_cleanable
from odradek_broker.log.cleaner_run import CleanerRun, CleaningAbortedError, CleaningLimits

LIMITS = CleaningLimits(1 << 20, 0.9, 256)


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


def test_a_new_topic_does_not_inherit_the_checkpoint_of_a_deleted_one() -> None:
    log = dirty_log()
    log.clean()
    assert b"orders 0 80" in log.disk.read("/data/cleaner-offset-checkpoint")
    log.manager.delete(log.log.topic_partition)
    assert log.disk.read("/data/cleaner-offset-checkpoint") == b"0\n0\n"


def test_appends_and_rolls_go_on() -> None:
    log = dirty_log()
    run = interrupted(
        log, 6000, lambda: [log.write([("a", "z" * 100)]) for _ in range(10)] and None
    )
    run.run()
    log.verify()
    assert len(log.log.segments) > 2
