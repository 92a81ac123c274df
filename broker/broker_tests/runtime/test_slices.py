"""Long work in slices: order, budget, failures, close."""

from collections.abc import Iterator

from broker_tests.manual_clock import ManualClock
from broker_tests.partition.support import ManualScheduler
from odradek_broker.runtime.slices import SLICE_MS, Slices


def work(done: list[str], name: str, steps: int, clock: ManualClock, ms: int = 0) -> Iterator[None]:
    for step in range(steps):
        done.append(f"{name}{step}")
        clock.advance(ms)
        yield None


def test_little_work_is_done_at_once() -> None:
    clock, done = ManualClock(), list[str]()
    slices = Slices(clock, ManualScheduler(clock))
    slices.add(work(done, "a", 3, clock))
    assert done == ["a0", "a1", "a2"]
    assert slices.idle


def test_long_work_continues_in_later_passes_in_order() -> None:
    clock, done = ManualClock(), list[str]()
    scheduler = ManualScheduler(clock)
    slices = Slices(clock, scheduler)
    slices.add(work(done, "a", 5, clock, ms=int(SLICE_MS) // 2))
    assert done == ["a0", "a1"], "one slice"
    slices.add(work(done, "b", 1, clock))
    assert done == ["a0", "a1"], "b does not overtake a"
    scheduler.run()
    assert done == ["a0", "a1", "a2", "a3", "a4", "b0"]
    assert slices.idle


def test_work_that_a_step_adds_comes_after_it() -> None:
    clock, done = ManualClock(), list[str]()
    slices = Slices(clock, ManualScheduler(clock))

    def adds() -> Iterator[None]:
        slices.add(work(done, "b", 1, clock))
        done.append("a")
        yield None

    slices.add(adds())
    assert done == ["a", "b0"]


def test_a_failure_does_not_keep_the_others_from_their_work() -> None:
    clock, done = ManualClock(), list[str]()
    scheduler = ManualScheduler(clock)
    slices = Slices(clock, scheduler)

    def fails() -> Iterator[None]:
        clock.advance(int(SLICE_MS))
        yield None
        raise AssertionError("a bug")

    slices.add(fails())
    slices.add(work(done, "b", 1, clock))
    scheduler.run()
    assert done == ["b0"]
    assert slices.idle


def test_nothing_is_done_after_close() -> None:
    clock, done = ManualClock(), list[str]()
    scheduler = ManualScheduler(clock)
    slices = Slices(clock, scheduler)
    slices.add(work(done, "a", 3, clock, ms=int(SLICE_MS)))
    slices.close()
    slices.add(work(done, "b", 3, clock))
    scheduler.run()
    assert done == ["a0"]


def test_only_work_that_outlasts_its_first_slice_is_continued() -> None:
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    slices = Slices(clock, scheduler)
    seen: list[bool] = []

    def looks() -> Iterator[None]:
        for _ in range(2):
            seen.append(slices.continued)
            clock.advance(int(SLICE_MS))
            yield None

    slices.add(looks())
    slices.add(looks())
    scheduler.run()
    assert seen == [False, True, False, True]
