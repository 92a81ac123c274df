"""A broker that runs out of space gives up its leaderships, where other replicas can lead."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from broker_tests.controller.active_support import World
from odradek_broker.controller.stepping_aside import (
    PAUSE_MS,
    Level,
    SteppingAside,
    can_step_aside,
    shares_any,
)
from odradek_protocol.ids import BrokerId

ONE = BrokerId(1)
ENOUGH, LOW, FULL = Level.ENOUGH, Level.LOW, Level.FULL


def two(_: str) -> int:
    return 2


def one(_: str) -> int:
    return 1


def world(replicas: list[int] | None = None) -> World:
    found = World(3)
    found.topic("t", [replicas or [1, 2, 3]])
    return found


def test_a_broker_steps_aside_only_if_enough_others_are_left() -> None:
    w = world()
    assert can_step_aside(w.image, ONE, two)
    w.alter_isr([1, 2])
    assert not can_step_aside(w.image, ONE, two), "one other, and two are needed"
    assert can_step_aside(w.image, ONE, one)
    w.fence(2)
    assert not can_step_aside(w.image, ONE, one), "nobody else is in sync"


def test_one_replica() -> None:
    w = world([1])
    assert not can_step_aside(w.image, ONE, one)
    assert not shares_any(w.image, ONE)
    assert can_step_aside(w.image, BrokerId(2), two), "it hosts nothing"


@pytest.mark.parametrize(
    ("levels", "aside"),
    [([LOW], True), ([LOW, ENOUGH], False), ([LOW, LOW], True), ([ENOUGH], False), ([], False)],
)
def test_all_directories_must_be_low(levels: list[Level], aside: bool) -> None:
    stepping = SteppingAside(ONE, Random(1))
    assert stepping.decide(levels, world([2, 1, 3]).image, two, 0) is aside


def test_it_comes_back_with_room_and_when_others_are_missing() -> None:
    w = world()
    stepping = SteppingAside(ONE, Random(1))
    assert stepping.decide([LOW], w.image, two, 0)
    w.fence(1)
    assert stepping.decide([LOW], w.image, two, 1_000), "still, though it is in no ISR now"
    w.fence(2)
    assert not stepping.decide([LOW], w.image, two, 2_000)
    w.heartbeat(2)
    assert not stepping.decide([LOW], w.image, two, 2_001)
    assert not stepping.decide([ENOUGH], w.image, two, 3_000)


def test_a_broker_steps_aside_again_only_after_a_pause() -> None:
    w = world([2, 1, 3])
    stepping = SteppingAside(ONE, Random(1))
    assert stepping.decide([LOW], w.image, two, 0)
    alone = world([3, 1, 2])
    alone.fence(2)
    assert not stepping.decide([LOW], alone.image, two, 1_000)
    assert not stepping.decide([LOW], w.image, two, 1_000 + PAUSE_MS / 2)
    assert stepping.decide([LOW], w.image, two, 1_000 + 2 * PAUSE_MS)


def test_leaders_move_where_others_can_lead() -> None:
    """1. the broker has the only replica of one partition, and leads a replicated one; 2. it is
    fenced for a moment; 3. it is not fenced again while others lead; 4. after a pause it is, if it
    leads again."""
    w = world()
    w.topic("alone", [[1]])
    stepping = SteppingAside(ONE, Random(1))
    assert stepping.decide([LOW], w.image, two, 0)
    w.fence(1)
    assert w.partition().leader != 1
    assert not stepping.decide([LOW], w.image, two, 1_000)
    w.heartbeat(1)
    assert w.partition("alone").leader == 1
    w.alter_isr([2, 3, 1])
    assert not stepping.decide([LOW], w.image, two, 2_000)
    w.elect(0)
    assert w.partition().leader == 1
    assert not stepping.decide([LOW], w.image, two, 3_000)
    assert stepping.decide([LOW], w.image, two, 2 * PAUSE_MS + 4_000)


def test_one_low_directory_of_two() -> None:
    w = world()
    (mine, *_) = w.partition().directories
    stepping = SteppingAside(ONE, Random(1))
    assert not stepping.decide([LOW, ENOUGH], w.image, two, 0, []), "it leads nothing there"
    assert stepping.decide([LOW, ENOUGH], w.image, two, 0, [mine])
    w.fence(1)
    assert not stepping.decide([LOW, ENOUGH], w.image, two, 100, [mine])


def test_the_pause_doubles() -> None:
    w = world()
    stepping = SteppingAside(ONE, Random(1))
    steps: list[Any] = []
    now_ms = 0.0
    while len(steps) < 5:
        if stepping.decide([LOW, ENOUGH], w.image, two, now_ms):
            steps.append(now_ms)
            stepping.leaving = False  # fenced, and leads its partitions again
        now_ms += 1_000
    gaps = [later - before for before, later in pairwise(steps)]
    assert all(
        PAUSE_MS * 2**n <= gap <= PAUSE_MS * 2 ** (n + 1) + 1_000 for n, gap in enumerate(gaps)
    )


def test_a_full_broker_leaves_every_isr_once() -> None:
    """1. one of its directories is full; 2. the broker is fenced; 3. it is unfenced again, because
    its other directories work."""
    w = world()
    stepping = SteppingAside(ONE, Random(1))
    assert stepping.decide([FULL, ENOUGH], w.image, two, 0)
    w.fence(1)
    assert not stepping.decide([FULL, ENOUGH], w.image, two, 1_000)
    w.heartbeat(1)
    assert not stepping.decide([FULL, ENOUGH], w.image, two, 2_000), "once"
    assert not stepping.decide([ENOUGH, ENOUGH], w.image, two, 3_000)
    assert stepping.decide([FULL, ENOUGH], w.image, two, 4_000) is shares_any(w.image, ONE)


def test_a_full_broker_without_other_replicas_stays() -> None:
    stepping = SteppingAside(ONE, Random(1))
    assert not stepping.decide([FULL], world([1]).image, one, 0), "readers are served"


def test_a_replica_in_a_full_directory_leaves_an_isr_that_took_it_in_late() -> None:
    """1. it is in no ISR when its directory gets full; 2. an earlier proposal of its
    leader arrives and adds it; 3. it leaves again, whatever room its other directory has. (Found
    by the simulation.)"""
    w = world([2, 1, 3])
    (mine, *_) = w.image.topics["t"].partitions[0].directories[1:]
    w.alter_isr([2, 3])
    stepping = SteppingAside(ONE, Random(1))
    levels = [FULL, ENOUGH]
    assert not stepping.decide(levels, w.image, two, 0, [mine], [mine])
    w.alter_isr([2, 3, 1])
    assert stepping.decide(levels, w.image, two, 1_000, [mine], [mine])
    w.fence(1)
    assert not stepping.decide(levels, w.image, two, 2_000, [mine], [mine]), "it is out"
