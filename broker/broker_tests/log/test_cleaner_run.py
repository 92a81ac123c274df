"""Whole compactions: of random histories, with crashes, and with a small map."""

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_tests.log.compaction import CONFIG, IDEMPOTENT, TRANSACTIONAL, CompactedLog
from broker_tests.log.crashing_disk import Crash, CrashingDisk
from broker_tests.log.support import read_all
from broker_tests.sim.memory_disk import SimDisk

KEYS = "abcdef"


def history(log: CompactedLog, rng: Random, steps: int) -> None:
    """Random writes by all kinds of producers."""
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.8:
            pairs = [
                (rng.choice(KEYS), rng.choice([None, "x", "y" * rng.randint(1, 80)]))
                for _ in range(rng.randint(1, 4))
            ]
            producer = rng.choice([-1, -1, *IDEMPOTENT, *TRANSACTIONAL])
            log.write(pairs, producer=producer, codec=rng.randrange(5))
        elif kind < 0.95:
            log.end_transaction(rng.choice(TRANSACTIONAL), commits=rng.random() < 0.5)
        else:
            log.roll()
        log.clock.advance(rng.choice([0, 10, 600]))


pairs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.text("xy", max_size=40)),
    min_size=1,
    max_size=4,
)
steps = st.one_of(
    st.tuples(
        st.just("write"),
        pairs,
        st.sampled_from([-1, *IDEMPOTENT, *TRANSACTIONAL]),
        st.integers(0, 4),
    ),
    st.tuples(st.just("write"), pairs, st.just(-1), st.just(0)),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("advance"), st.sampled_from([1, 500, 1500])),
    st.tuples(st.just("clean"), st.sampled_from([2, 5, 1000])),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=5, max_size=40), st.integers(0, 2**32))
def test_any_history_cleaned_at_any_point(script: list[tuple[Any, ...]], seed: int) -> None:
    disk = SimDisk()
    log = CompactedLog(disk)
    for name, *arguments in [*script, ("roll",), ("clean", 1000), ("reopen", True)]:
        match name:
            case "write":
                pairs, producer, codec = arguments
                log.write(pairs, producer=producer, codec=codec)
            case "end":
                log.end_transaction(arguments[0], commits=arguments[1])
            case "roll":
                log.roll()
            case "advance":
                log.clock.advance(arguments[0])
            case "clean":
                log.clean(arguments[0])
                log.verify()
            case "reopen":
                if arguments[0]:
                    log.close()
                log.reopen()
                log.verify()


def test_cleaning_again_and_again_ends_with_the_values_alone() -> None:
    """Without new writes: tombstones, markers and superseded records are all gone at the end."""
    log = CompactedLog(SimDisk())
    history(log, Random(8), 150)
    for producer in TRANSACTIONAL:
        log.end_transaction(producer, commits=True)
    log.write([("z", "last")])
    for _ in range(5):
        log.write([("z", "again")])  # something dirty
        log.roll()
        log.clean()
        log.verify()
        log.clock.advance(CONFIG.delete_retention_ms)
    latest = {written.record.key: written.record for written in log.written.values()}
    left = [r for r in read_all(log.log) if r.key in latest and r.value is not None]
    keys = [record.key for record in left]
    assert len(keys) == len(set(keys))
    # The last tombstones went except those in the newest, uncleaned segment.
    assert not [r for r in read_all(log.log) if r.value is None and r.offset < log.log_end - 2]


@pytest.mark.parametrize("map_keys", [1, 2, 3])
def test_a_small_map_takes_several_runs_each_of_which_gets_on(map_keys: int) -> None:
    log = CompactedLog(SimDisk())
    history(log, Random(4), 60)
    log.roll()
    cleaned = log.log.cleaned_offset
    runs = 0
    while log.clean(map_keys) is not None:
        assert log.log.cleaned_offset > cleaned
        cleaned = log.log.cleaned_offset
        log.verify()
        runs += 1
    assert runs > 3


def test_small_segments_become_one() -> None:
    """Sizes before a run decide which segments are merged, so the second run merges them."""
    log = CompactedLog(SimDisk())
    for number in range(60):
        log.write([(KEYS[number % 3], "v" * 50)])
    log.roll()
    log.clean()
    assert len(log.log.segments) > 8
    log.write([("a", "w")])
    log.roll()
    log.clean()
    assert len(log.log.segments) == 2  # all that was cleaned, and the active one
    log.verify()


# Crashes


@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("clean_start", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_crash_before_every_single_change(
    seed: int, clean_start: bool, power_fails: bool
) -> None:
    """1. A history, with an earlier cleaning in its middle so that horizons are about to pass.
    2. A cleaning crashes before its n-th change of the disk: the process, or the machine.
    3. The log is opened again: all guarantees hold.
    4. It is cleaned completely: they still hold, and no temporary file is left.
    """
    rng = Random(seed)
    start = CompactedLog(CrashingDisk())
    history(start, rng, 30)
    start.roll()
    start.clean()
    start.clock.advance(CONFIG.delete_retention_ms)
    history(start, rng, 20)
    start.roll()
    if clean_start:
        start.close()
    else:
        start.log.flush()  # otherwise a power failure may lose written records
    for changes in itertools.count():
        log = start.on_a_copy_of_its_disk()
        assert isinstance(log.disk, CrashingDisk)
        log.disk.arm(changes)
        try:
            log.clean()
            finished = True
        except Crash:
            finished = False
        log.disk.disarm()
        if power_fails:
            log.disk.crash(rng)
        log.reopen()
        log.verify()
        if finished:
            assert changes > 50
            return
        log.clean()
        log.verify()
        names = [entry.name for entry in log.disk.scan(log.log.dir)]
        assert not [n for n in names if n.endswith((".cleaned", ".swap", ".tmp"))]
