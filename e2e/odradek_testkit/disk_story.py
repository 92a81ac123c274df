"""The test "a broker's disk fills up", for clusters of every kind: processes, pods.

    a_disk_fills_up(world, load, broker=1)

Three replicas, min ISR 2, acks=all: one broker that runs out of disk space costs a failover and no
acknowledged write. The world fills the disk, frees it again, and reports the cluster's status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek_testkit.load import Load

ACKS = 300  # while the disk is full: several seconds of writes


class DiskWorld(Protocol):
    """A cluster whose disks the test can fill."""

    def fill(self, broker: int) -> None:
        """Leave less than the reserve."""

    def make_room(self, broker: int) -> None: ...

    def disk_pressure(self) -> str:
        """The message of the condition DiskPressure while it is True; else empty."""

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = 60.0
    ) -> float: ...


def a_disk_fills_up(world: DiskWorld, load: Load, broker: int, *, in_words: str = "") -> str:
    """Returns the message of DiskPressure.

    1. The disk is filled. 2. DiskPressure names the broker and its directory. 3. Writes go on in
    every partition. 4. Space is freed. 5. DiskPressure ends, and writes go on.
    """
    load.wait_for_acks(ACKS)
    world.fill(broker)

    def named() -> bool:
        said = world.disk_pressure()
        return f"broker {broker}: " in said and in_words in said

    world.wait_until(named, "DiskPressure names the broker")
    said = world.disk_pressure()
    load.wait_for_every_partition()
    load.wait_for_acks(ACKS)
    world.make_room(broker)
    world.wait_until(lambda: not world.disk_pressure(), "DiskPressure ended")
    load.wait_for_every_partition()
    return said
