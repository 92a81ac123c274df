"""A broker's disk fills up, on Kubernetes: status and events, writes that go on, recovery.

The provisioner of kind uses directories on the node's disk, which must not be filled. So the log
directory of every broker is a tmpfs here (an emptyDir of kind Memory, mounted over the directory on
the volume): it is small and survives its container. A file in it takes the space. The same story
runs on processes (operator_tests/local/test_disk.py).
"""

from __future__ import annotations

from collections.abc import Callable

from e2e_tests.kind.story import PATIENCE_S, Story
from e2e_tests.kind.test_rolls import begin
from odradek_testkit.disk_story import a_disk_fills_up

LOG_DIR = "/var/lib/odradek/data-0/log"
SIZE_MB = 128
LOW_BYTES = SIZE_MB * (1 << 20) * 4 // 100  # less than the reserve of 5 %, more than half of it
BROKER, POD = 1, "main-zone-b-0"
SMALL = {
    "volumes": [{"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SIZE_MB}Mi"}}],
    "volumeMounts": [{"name": "small", "mountPath": LOG_DIR}],
}
FILL = f"""
import os
found = os.statvfs({LOG_DIR!r})
assert found.f_blocks * found.f_frsize <= {SIZE_MB} << 20, "not the small disk: nothing is filled"
with open({LOG_DIR!r} + "/filler", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - {LOW_BYTES})
"""
EMPTY = f"import os; os.unlink({LOG_DIR!r} + '/filler')"


class DiskWorld:
    def __init__(self, story: Story) -> None:
        self.story = story

    def fill(self, broker: int) -> None:
        self.story.kubectl("exec", POD, "--", "python3", "-c", FILL)

    def make_room(self, broker: int) -> None:
        self.story.kubectl("exec", POD, "--", "python3", "-c", EMPTY)

    def disk_pressure(self) -> str:
        found = {one["type"]: one for one in self.story.status()["conditions"]}
        condition = found["DiskPressure"]
        return str(condition["message"]) if condition["status"] == "True" else ""

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = PATIENCE_S
    ) -> float:
        return self.story.wait_until(condition, what, deadline_s)


def test_a_disk_fills_up(story: Story) -> None:
    begin(story, podTemplate=SMALL)
    uids = story.uids()
    with story.load("orders") as load:
        said = a_disk_fills_up(DiskWorld(story), load, BROKER)
        story.settle()
    print(story.judge(load))
    assert f"broker {BROKER}: {LOG_DIR} has " in said
    assert story.uids() == uids, "nobody was restarted for it"
    assert any(f"broker {BROKER}: {LOG_DIR} has " in event for event in story.events("LowSpace"))
    assert story.events("DiskPressureOver") == [
        f"broker {BROKER}: {LOG_DIR} has enough free space again"
    ]
