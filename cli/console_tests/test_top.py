"""`odradek top` against a real broker: once, as JSON, live in a terminal, and without a cluster."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from console_tests.conftest import Kafka
from odradek_console.top import _bars
from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets
from odradek_protocol.ids import TopicPartition
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_port
from odradek_testkit.waiting import wait_until

READ_BYTES = 65_536
TOPS_S = 120.0  # some processes, one after the other


@pytest.fixture(scope="module")
def lagging(kafka: Kafka) -> Iterator[str]:
    """A topic that grows all the time, and a group that is behind."""
    topic = kafka.topic("top-orders", 1)
    kafka.produce(topic, [b"x"] * 50)
    place = TopicPartition(topic, 0)
    assert not commit_offsets(kafka.client, "slow", {place: CommittedOffset(8)})
    end = threading.Event()

    def write() -> None:
        while not end.wait(0.05):
            kafka.produce(topic, [b"x"] * 10)

    thread = threading.Thread(target=write)
    thread.start()
    yield topic
    end.set()
    thread.join()


def top(*options: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", "top", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout or done.stderr


def test_once_as_text_and_as_json(broker: RunningBroker, lagging: str) -> None:
    text, found = "", {}

    def has_rate() -> bool:  # on a loaded machine nothing may be written between its two looks
        nonlocal text
        text = top("--bootstrap", broker.bootstrap, "--once", "--interval", "0.5")
        return re.search(rf"{lagging} +\d", text) is not None

    def has_rate_as_json() -> bool:
        nonlocal found
        found = json.loads(top("-b", broker.bootstrap, "--json", "--interval", "0.5"))
        return lagging in [one["topic"] for one in found["busiest_topics"]]

    wait_until(has_rate, "a rate of the topic", TOPS_S)
    assert "healthy" in text
    assert broker.bootstrap in text
    assert re.search(r"slow +\d", text)
    assert "\x1b" not in text  # no colours in a pipe
    wait_until(has_rate_as_json, "a rate of the topic as JSON", TOPS_S)
    assert found["state"] == "healthy"
    (one,) = found["brokers"]
    assert one["controller"]
    assert one["running"]
    assert one["round_trip_ms"] > 0
    assert found["records_per_second"] > 0
    (group,) = [one for one in found["lagging_groups"] if one["group"] == "slow"]
    assert group["lag"] >= 42


@contextmanager
def terminal(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process on a terminal of 120 columns, and our end of it."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                          start_new_session=True) as process:  # fmt: skip
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(ours: int, word: bytes) -> bytes:
    seen = b""
    while word not in seen:
        ready, _, _ = select.select([ours], [], [], 60)
        assert ready, seen
        seen += os.read(ours, READ_BYTES)
    return seen


def test_live_until_ctrl_c(broker: RunningBroker, lagging: str) -> None:
    """The second picture has rates; Ctrl-C ends it without an error."""
    command = [sys.executable, "-m", "odradek_cli", "top", "-b", broker.bootstrap]
    with terminal(*command, "--interval", "0.5") as (process, ours):
        read_until(ours, b"healthy")
        read_until(ours, f"{lagging} ".encode())  # among the busiest: it has a rate
        process.send_signal(signal.SIGINT)
        read_until(ours, b"\x1b[?1049l")  # the screen of before is back
        assert process.wait(60) == 0


def test_a_cluster_that_does_not_answer_is_a_sentence() -> None:
    said = top("-b", f"127.0.0.1:{free_port()}", "--once", code=1)
    assert said.startswith("odradek: ")
    assert said.count("\n") == 1


def test_bars() -> None:
    assert _bars([0, 5, 10]) == "▁▅█"
    assert _bars([0, 0]) == ""
    assert len(_bars(list(range(1, 100)))) == 60
