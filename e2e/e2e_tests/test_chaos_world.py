"""The world of a campaign: plans, links, clocks, and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from odradek_e2e.chaos.schedule import KINDS, plan
from odradek_e2e.chaos.world import clocks, sandbox
from odradek_e2e.chaos.world.links import CUT, Links, Rule
from odradek_testkit.waiting import wait_until

# Mounts a file system, adds a namespace, starts a process that ignores signals, and waits.
BUSY = """
import json, os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(sys.argv[1])
(here / "disk").mkdir()
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", here / "disk"], check=True)
(here / "disk" / "file").write_text("x")
pathlib.Path("/run/netns").mkdir(exist_ok=True)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
subprocess.run(["ip", "netns", "add", "left-behind"], check=True)
subprocess.run(["ip", "link", "add", "left-behind", "type", "bridge"], check=True)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code, "left-behind " + str(here)], start_new_session=True)
(here / "ready").write_text("")
time.sleep(600)
"""
CAMPAIGN = """
import sys
from odradek_e2e.chaos.world import sandbox
sys.exit(sandbox.inside([sys.executable, "-c", sys.argv[1], sys.argv[2]]))
"""


def needs_sandbox() -> None:
    if why := sandbox.obstacle():
        pytest.skip(f"no sandbox for a campaign: {why}")


def of_campaign(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(directory) in word for word in words):
            found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_of_a_campaign_stays_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Neither a process nor a mount nor an interface, however the campaign ends."""
    needs_sandbox()
    campaign = subprocess.Popen([sys.executable, "-c", CAMPAIGN, BUSY, str(tmp_path)])
    try:
        wait_until((tmp_path / "ready").exists, "the campaign is under way")
        assert len(of_campaign(tmp_path)) >= 4  # the campaign, unshare, process 1, its child
        campaign.send_signal(number)
        campaign.wait(30)
        wait_until(lambda: not of_campaign(tmp_path), "all processes have ended")
    finally:
        campaign.kill()
    assert list((tmp_path / "disk").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not Path("/run/netns/left-behind").exists()
    assert not Path("/sys/class/net/left-behind").exists()


def test_a_plan_is_a_function_of_its_seed() -> None:
    assert plan(7, 60) == plan(7, 60)
    assert plan(7, 60) != plan(8, 60)
    met = {episode.kind for seed in range(40) for episode in plan(seed, 60).episodes}
    assert met == {kind.name for kind in KINDS}
    for seed in range(40):
        made = plan(seed, 60)
        assert made.disks.count("loop") == 1
        failing = [e for e in made.episodes if e.kind == "disk-fails"]
        assert all(made.disks[e.broker - 1] == "loop" for e in failing)


def packet(receiver: int, number: int) -> bytes:
    return b"\x45" + bytes(18) + bytes([receiver]) + struct.pack(">I", number)


class Ends:
    """Members 1 and 2, whose devices are pipes."""

    def __init__(self) -> None:
        self.links = Links(random.Random(1))
        self.readers = {}
        for member in (1, 2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self.links.add(member, writer)
            self.readers[member] = reader

    def arrived(self, member: int) -> list[int]:
        try:
            data = os.read(self.readers[member], 1 << 20)
        except BlockingIOError:
            return []
        return [struct.unpack(">I", data[i + 20 : i + 24])[0] for i in range(0, len(data), 24)]


def test_a_cut_has_a_direction() -> None:
    ends = Ends()
    ends.links.set_rules([[1, 2, *CUT]])
    ends.links.take(1, packet(2, 7), now=0.0)
    ends.links.take(2, packet(1, 8), now=0.0)
    assert ends.arrived(2) == []
    assert ends.arrived(1) == [8]
    ends.links.set_rules([])
    ends.links.take(1, packet(2, 9), now=0.0)
    assert ends.arrived(2) == [9]


def test_delay_jitter_and_duplicates() -> None:
    ends = Ends()
    ends.links.set_rules([[1, 2, *Rule(delay_ms=50, jitter_ms=100, duplicate=0.5)]])
    for number in range(40):
        ends.links.take(1, packet(2, number), now=0.0)
    assert ends.links.deliver(0.049) is not None
    assert ends.arrived(2) == []
    assert ends.links.deliver(0.151) is None
    arrived = ends.arrived(2)
    assert set(arrived) == set(range(40))
    assert 45 < len(arrived) < 75
    assert arrived != sorted(arrived)


def test_loss_is_a_share_of_the_packets() -> None:
    ends = Ends()
    ends.links.set_rules([[1, 2, *Rule(drop=0.25)]])
    for number in range(1000):
        ends.links.take(1, packet(2, number), now=0.0)
    assert 650 < len(ends.arrived(2)) < 850


def test_the_clock_of_a_process_moves_and_its_monotonic_clock_does_not(tmp_path: Path) -> None:
    if not clocks.library():
        pytest.skip("there is no C compiler for the preloaded clock")
    clock = clocks.ProcessClock(tmp_path / "clock")
    asked = "import json, sys, time\nfor _ in sys.stdin: print(json.dumps([time.time(), "
    asked += "time.monotonic()]), flush=True); time.sleep(0.0005)"
    with subprocess.Popen(
        [sys.executable, "-c", asked], env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for moved in (0, 3_600, -86_400, 0):
            clock.move(moved)
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic = json.loads(process.stdout.readline())
            assert abs(wall - time.time() - moved) < 30
            assert abs(monotonic - time.monotonic()) < 30
        process.stdin.close()
