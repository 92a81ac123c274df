"""A log's copy in another directory: always a prefix of it, and swapped in whole or not at all."""

import copy as copy_module
import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_tests.log.crashing_disk import Crash, CrashingDisk
from broker_tests.log.support import NOW_MS, TOPIC_ID, TP, append, batch, open_manager, values
from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log import copying
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.future_logs import lag_of
from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import TopicPartition

DIRS = ("/a", "/b")
SMALL = LogConfig(segment_bytes=300)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "SLICE_BYTES", 200)


def opened(disk: SimDisk, *, load: bool = True) -> LogManager:
    manager = open_manager(disk, *DIRS)
    if load:
        manager.load(config_of=lambda _: SMALL)
    return manager


def created(disk: SimDisk, records: int = 10) -> tuple[LogManager, Log]:
    """A log in /a."""
    manager = opened(disk)
    manager.prefer(TP, manager.dirs[0])
    log = manager.get_or_create(TP, TOPIC_ID, SMALL)
    for number in range(records):
        append(log, f"v{number}", leader_epoch=number // 4)
    return manager, log


def begin(manager: LogManager, to: int = 1) -> Log:
    return manager.create_future(manager.logs[TP], manager.dirs[to])


def copy_slice(source: Log, copy: Log) -> bool:
    """False if there was nothing to copy."""
    found = copying.next_range(source, copy)
    if found is None:
        return False
    data = found.file.pread(found.length, found.position)  # type: ignore[attr-defined]
    copying.take(source, copy, data, NOW_MS)
    copy.validate()
    return True


def finish(manager: LogManager) -> Log:
    source, copy = manager.logs[TP], manager.futures.logs[TP]
    copying.align(source, copy, NOW_MS)
    while copy_slice(source, copy):
        pass
    copying.flush_copy(copy)
    assert copying.is_complete(source, copy)
    moved = manager.swap(TP)
    moved.validate()
    return moved


def names(disk: SimDisk, directory: str) -> list[str]:
    return sorted(entry.name for entry in disk.scan(directory) if entry.is_dir)


def retired_and_home(disk: SimDisk) -> tuple[str, str]:
    """Reads a log that was swapped out."""
    (retired,) = names(disk, "/a")
    return f"/a/{retired}", "/a/orders-0"


def test_a_log_moves_with_all_that_it_knows() -> None:
    disk = SimDisk()
    manager, log = created(disk)
    for sequence in range(3):
        log.append_as_leader(batch("p", producer=(7, 0, sequence)), 5, NOW_MS)
    log.write_pending()
    log.high_watermark = 12
    log.epochs.assign(9, log.log_end_offset)  # an epoch without records
    expected, epochs = values(log), list(log.epochs.entries)

    copy = begin(manager)
    assert copy.is_future
    assert lag_of(copy, manager.logs) == 13
    assert names(disk, "/a") == ["orders-0"]
    (future_name,) = names(disk, "/b")
    assert future_name.startswith("orders-0.")
    assert future_name.endswith("-future")
    moved = finish(manager)

    assert moved is copy is manager.logs[TP]
    assert not moved.is_future
    assert moved.dir == "/b/orders-0"
    assert not manager.futures.logs
    assert (values(moved), list(moved.epochs.entries)) == (expected, epochs)
    assert moved.high_watermark == 12
    duplicate = moved.append_as_leader(batch("p", producer=(7, 0, 2)), 5, NOW_MS)
    assert duplicate.first_offset == 12
    append(moved, "after", leader_epoch=9)

    assert names(disk, "/b") == ["orders-0"]
    (retired,) = names(disk, "/a")
    assert retired.endswith("-delete")
    assert retired.split(".")[1].removesuffix("-delete") in future_name
    for job in manager.tick(NOW_MS + SMALL.file_delete_delay_ms + 1):
        job()
    assert names(disk, "/a") == []
    manager.close()
    again = opened(disk)
    assert values(again.logs[TP]) == [*expected, "after"]


def test_it_follows_a_source_that_is_cut_and_goes_on_with_another_history() -> None:
    manager, log = created(SimDisk(), records=12)
    copy = begin(manager)
    while copy_slice(log, copy):
        pass
    log.truncate_to(6)
    for number in range(8):
        append(log, f"w{number}", leader_epoch=7)
    copying.align(log, copy, NOW_MS)
    assert copy.log_end_offset == 6
    assert values(finish(manager)) == [*(f"v{n}" for n in range(6)), *(f"w{n}" for n in range(8))]


def test_a_source_that_starts_in_the_middle_of_a_batch() -> None:
    manager, log = created(SimDisk(), records=0)
    append(log, "a", "b", "c", "d")
    append(log, "e")
    log.advance_log_start_offset(2)
    begin(manager)
    moved = finish(manager)
    assert moved.log_start_offset == 2
    assert values(moved) == ["c", "d", "e"]


def test_a_copy_that_was_overtaken_by_deletion_starts_anew() -> None:
    manager, log = created(SimDisk())
    copy = begin(manager)
    copy_slice(log, copy)
    log.advance_log_start_offset(9)
    moved = finish(manager)
    assert moved.log_start_offset == 9
    assert values(moved) == ["v9"]


changes = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.integers(0, 100)),
    st.tuples(st.just("start"), st.integers(0, 100)),
    st.tuples(st.just("copy"), st.integers(1, 4)),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(changes, max_size=30))
@example(  # all that is copied was cut off the source, which then begins where the copy ends
    [("copy", 1), ("cut", 0), ("append", 3), ("start", 34), ("copy", 1), ("reopen", False)]
)
@example(  # the crash restores an older log start, but not the epochs that were trimmed with it
    [
        ("copy", 1),
        ("cut", 0),
        ("append", 3),
        ("append", 2),
        ("start", 20),
        ("cut", 25),
        ("reopen", False),
    ]
)
def test_whatever_happens_meanwhile_the_copy_equals_the_source(
    script: list[tuple[Any, ...]],
) -> None:
    """The source is written to in new epochs, cut, trimmed, and the broker starts again."""
    disk = SimDisk()
    manager, log = created(disk, records=3)
    begin(manager)
    epoch, written, truncations = 1, 0, -1
    for what, how in script:
        log, copy = manager.logs[TP], manager.futures.logs[TP]
        length = log.log_end_offset - log.log_start_offset
        if what == "append":
            for _ in range(how):
                append(log, f"n{written}", leader_epoch=epoch)
                written += 1
        elif what == "cut":
            log.truncate_to(log.log_start_offset + length * how // 100)
            log.high_watermark = log.log_end_offset
            epoch += 1
        elif what == "start":
            log.advance_log_start_offset(log.log_start_offset + length * how // 100)
        elif what == "copy":
            if truncations != log.truncations or copy.log_end_offset < log.log_start_offset:
                copying.align(log, copy, NOW_MS)
                truncations = log.truncations
            for _ in range(how):
                copy_slice(log, copy)
        elif what == "reopen":
            if how:
                manager.close()
            disk._locks.clear()
            manager = opened(disk)
            manager.logs[TP].high_watermark = manager.logs[TP].log_end_offset
            truncations = -1
    log = manager.logs[TP]
    moved = finish(manager)
    # A crash may have brought deleted records back (the start is a checkpoint), but not here.
    assert moved.log_start_offset >= log.log_start_offset
    log.removed = False
    disk.rename(*retired_and_home(disk))
    assert values(moved) == values(log, moved.log_start_offset)
    log.epochs.truncate_from_start(moved.log_start_offset)
    assert moved.epochs.entries == log.epochs.entries


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_crash_before_every_single_change(power_fails: bool) -> None:
    """1. a log is copied and swapped; 2. the process, or the machine, stops before the n-th
    change of the disk; 3. the next start has the log once and whole, in one of the directories;
    4. a copy that was found is continued and completed."""
    start = CrashingDisk()
    manager, _ = created(start)
    manager.logs[TP].flush()
    expected = values(manager.logs[TP])
    manager.close()
    start.disarm()
    resumed = promoted = 0
    for number in itertools.count():
        disk = copy_module.deepcopy(start)
        manager = opened(disk)
        manager.logs[TP]._state.changed = True
        disk.arm(number)
        try:
            begin(manager)
            finish(manager)
            done = True
        except Crash:
            done = False
        disk.disarm()
        if power_fails:
            disk.crash(Random(number))
        manager = opened(disk)
        assert values(manager.logs[TP]) == expected, number
        homes = [d for d in DIRS if "orders-0" in names(disk, d)]
        assert len(homes) == 1, number
        promoted += homes == ["/b"] and not done
        if TP in manager.futures.logs:
            resumed += 1
            assert values(finish(manager)) == expected, number
        for job in manager.tick(NOW_MS + SMALL.file_delete_delay_ms + 1):
            job()
        left = [name for d in DIRS for name in names(disk, d)]
        assert left == ["orders-0"], (number, left)
        if done:
            break
    assert number > 30
    assert resumed > 5
    assert promoted >= 1


def test_a_swap_whose_new_directory_fails_leaves_the_replica_where_it_was() -> None:
    disk = SimDisk()
    manager, log = created(disk)
    copy = begin(manager)
    while copy_slice(log, copy):
        pass
    copying.flush_copy(copy)
    disk.fail("/b", 5)
    with pytest.raises(LogDirError) as failed:
        manager.swap(TP)
    assert failed.value.path == "/b"
    assert not log.removed
    append(log, "goes on")
    assert values(manager.logs[TP])[-1] == "goes on"
    assert names(disk, "/a") == ["orders-0"]


def test_future_directories_at_start() -> None:
    """Of a partition that is nowhere, twice of one, of one in the same directory: removed."""
    disk = SimDisk()
    manager, _ = created(disk)
    manager.close()
    for path in (
        f"/b/gone-0.{'0' * 32}-future",
        f"/a/orders-0.{'1' * 32}-future",
        f"/b/orders-0.{'2' * 32}-future",
        f"/b/{'x' * 200}.{'3' * 32}-future",
    ):
        disk.make_dir(path)
    manager = opened(disk)
    assert names(disk, "/a") == ["orders-0", f"orders-0.{'1' * 32}-delete"]
    assert [n for n in names(disk, "/b") if n.endswith("-future")] == [
        f"orders-0.{'2' * 32}-future"
    ]
    assert manager.futures.logs.keys() == {TP}
    assert len(values(finish(manager))) == 10


def test_a_copy_is_left_alone_while_the_directory_of_its_source_is_offline() -> None:
    disk = SimDisk()
    manager, _ = created(disk)
    begin(manager)
    manager.close()
    disk.fail("/a", 5)
    manager = opened(disk)
    assert TP not in manager.logs
    assert TP not in manager.futures.logs
    (name,) = names(disk, "/b")
    assert name.endswith("-future")
    manager.close()
    disk.heal()
    assert opened(disk).futures.logs.keys() == {TP}


def test_a_log_that_is_deleted_while_it_moves() -> None:
    disk = SimDisk()
    manager, _ = created(disk)
    begin(manager)
    manager.delete(TP)
    assert not manager.futures.logs
    assert all(name.endswith("-delete") for d in DIRS for name in names(disk, d))
    manager.close()
    assert not opened(disk).logs


def test_a_new_replica_is_made_where_it_was_asked_for() -> None:
    manager = open_manager(SimDisk(), *DIRS, clock=ManualClock(NOW_MS))
    for number in range(4):
        manager.prefer(TopicPartition("t", number), manager.dirs[1])
        log = manager.get_or_create(TopicPartition("t", number), TOPIC_ID, SMALL)
        assert log.dir.startswith("/b/")
