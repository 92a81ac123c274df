"""A broker's disk fills up, on processes: status, writes that go on, and the way back.

The same story runs on kind (e2e/e2e_tests/kind/test_disk.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek_testkit.disk_story import a_disk_fills_up
from odradek_testkit.load import Load
from odradek_testkit.small_disk import SmallDisk
from operator_tests.local.local import DEADLINE_S, KEY, Local
from operator_tests.local.test_under_load import TOPIC, costs, judge

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BROKER = 1
SMALL_MB, LARGE_MB = 100, 400  # the reserve is a twentieth: 5 MB of the small one
LOW_BYTES = 4 << 20  # less than the reserve, and more than half of it


class DiskWorld:
    """A local runtime, one of whose brokers has a small disk."""

    def __init__(self, local: Local, disk: SmallDisk, *, brim: bool) -> None:
        self.local, self.disk, self.brim = local, disk, brim

    def fill(self, broker: int) -> None:
        self.disk.fill(0 if self.brim else LOW_BYTES)

    def make_room(self, broker: int) -> None:
        self.disk.resize(LARGE_MB)

    def disk_pressure(self) -> str:
        report = self.local.runtime.report.clusters[KEY]
        (found,) = [c for c in report.status.conditions if c.type == "DiskPressure"]
        return found.message if found.status == "True" else ""

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = DEADLINE_S
    ) -> float:
        return self.local.wait_until(condition, what, deadline_s)


@contextmanager
def begun(tmp_path: Path, *, brim: bool = False, **spec: Any) -> Iterator[DiskWorld]:
    """Three brokers, one with a small disk, and a topic on all of them."""
    data = tmp_path / "state" / "default.main" / f"broker-{BROKER}" / "data-0"
    with SmallDisk(data, SMALL_MB) as disk, Local(tmp_path, brokers=3, **spec) as local:
        local.topic("orders", **TOPIC)
        local.settle()
        yield DiskWorld(local, disk, brim=brim)


def test_a_disk_that_fills_up_gets_room_again(tmp_path: Path) -> None:
    """Less than the reserve is free: others lead, no broker restarts, more space is enough."""
    with begun(tmp_path) as world:
        local = world.local
        pids = local.settle().pids
        with Load(local, "orders", partitions=6, per_second=200) as load:
            said = a_disk_fills_up(world, load, BROKER)
            after = local.settle()
            load.wait_for_acks(100)
        judge(load)
        print(f"\n{said}\n{costs(load)}")
        assert f"{world.disk.path} has " in said
        assert f"(reserve {SMALL_MB * 5 / 100:.1f} MiB)" in said
        assert after.pids == pids, "nobody was restarted for it"
        assert after.status.preferred_leaders_percent == 100


def test_a_broker_without_any_room_ends_and_comes_back(tmp_path: Path) -> None:
    """No byte is free: it exits, is started again, waits for room, and becomes ready with it."""
    with begun(tmp_path, brim=True) as world:
        local = world.local
        pids = local.settle().pids
        with Load(local, "orders", partitions=6, per_second=200) as load:
            said = a_disk_fills_up(world, load, BROKER, in_words="exit code 75")
            after = local.settle()
            load.wait_for_acks(100)
        judge(load)
        print(f"\n{said}\n{costs(load)}")
        assert str(world.disk.path) in said
        assert "; next start after " in said or "; started again" in said
        assert after.pids[BROKER] != pids[BROKER]
        assert {b: p for b, p in after.pids.items() if b != BROKER} == {
            b: p for b, p in pids.items() if b != BROKER
        }, "the others were left alone"
