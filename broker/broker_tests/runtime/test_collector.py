"""When gc.freeze is called, so that full collections skip live objects."""

import gc
from collections.abc import Iterator

import pytest

from odradek_broker.runtime import collector
from odradek_broker.runtime.collector import ShortPauses


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def pauses() -> Iterator[ShortPauses]:
    pauses = ShortPauses()
    pauses.install()
    yield pauses
    pauses.remove()
    gc.unfreeze()


def circles() -> int:
    return sum(isinstance(found, Circle) for found in gc.get_objects())


def test_while_a_broker_starts_live_objects_are_frozen(pauses: ShortPauses) -> None:
    alive = [Circle() for _ in range(100)]
    gc.collect()
    assert gc.get_freeze_count() > len(alive)


def test_afterwards_garbage_is_found(pauses: ShortPauses, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses.set_aside()
    monkeypatch.setattr(collector, "GROWING_NS", 0)
    monkeypatch.setattr(collector._Growth, "until_ns", 0)
    collector.growing()
    for _ in range(100):
        Circle()
    gc.collect()
    assert not circles()


def test_while_the_heap_grows_live_objects_are_frozen(pauses: ShortPauses) -> None:
    pauses.set_aside()
    frozen = gc.get_freeze_count()
    alive = [Circle() for _ in range(100)]
    collector.growing()
    gc.collect()
    assert gc.get_freeze_count() >= frozen + len(alive)
