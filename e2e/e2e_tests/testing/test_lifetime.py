"""Brokers end with the test run: also after kill -9, although others hold the launcher's socket."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from odradek_testkit.waiting import wait_until

TESTS = """
import json, os, sys, time
import pytest
from odradek_testkit.launching import launcher

@pytest.mark.kafka(brokers=3)
def test_it(kafka):
    kafka.topics.create("orders")
    kafka.brokers[2].pause()
    holder = os.fork()          # a child that keeps every descriptor of pytest open
    if holder == 0:
        time.sleep(600)
    told = {
        "pids": [launcher().pid, *(b.pid for b in kafka.brokers)],
        "ports": [int(b.address.rpartition(":")[2]) for b in kafka.brokers],
        "directory": str(launcher().directory),
        "holder": holder,
    }
    with open("told.tmp", "w") as file:
        json.dump(told, file)
    os.rename("told.tmp", "told.json")
    time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["pytest", "launcher"])
def test_after_kill_9(tmp_path: Path, victim: str) -> None:
    """Of pytest: the launcher ends all. Of the launcher: the kernel ends the brokers."""
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", "test_it.py"]
    with open(tmp_path / "out", "wb") as out:
        run = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    told: dict[str, Any] = {}
    try:
        path = tmp_path / "told.json"
        wait_until(lambda: path.exists() or run.poll() is not None, "the brokers run", 120)
        assert path.exists(), (tmp_path / "out").read_text()
        told = json.loads(path.read_text())
        brokers = [psutil.Process(pid) for pid in told["pids"]]
        os.kill(run.pid if victim == "pytest" else told["pids"][0], signal.SIGKILL)
        wait_until(lambda: not any(map(_exists, brokers)), "no broker is left", 60)
        if victim == "pytest":
            wait_until(lambda: not Path(told["directory"]).exists(), "their files are gone", 60)
    finally:
        run.kill()
        run.wait()
        if told:
            os.kill(told["holder"], signal.SIGKILL)


def _exists(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
