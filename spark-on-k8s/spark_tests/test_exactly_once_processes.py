"""The exactly-once sink under faults, without Spark: many more of them in the same time.

Faults come from a seed, which is printed; ODRADEK_SEED repeats it. The whole, with Spark, is
test_exactly_once_killed.py.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from odradek_testkit.engines import RunningApacheKafka, RunningBroker
from odradek_testkit.pipelines import Pipelines
from spark_tests.parts_driver import CONFLICT, GIVEN_UP, REPLACED, WRITERS, ids, newest

PATIENCE_S = 600.0
LONG = pytest.mark.long  # Apache Kafka's start, and ten times as many faults


class Faults:
    def __init__(self, pipelines: Pipelines, topic: str, checkpoint: Path, seed: int) -> None:
        self.happened: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._command = [sys.executable, "-m", "spark_tests.parts_driver", pipelines.bootstrap,
                         topic, str(checkpoint)]  # fmt: skip
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._out, self._commits = checkpoint / "drivers.out", checkpoint / "commits"
        self.drivers: list[subprocess.Popen[bytes]] = []
        self.current = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with open(self._out, "ab") as out:
            made = subprocess.Popen(
                self._command, stdout=out, stderr=out, start_new_session=True, env=self._env
            )
        self.drivers.append(made)
        return made

    def one(self) -> None:
        rng = self._rng
        if rng.random() < 0.7:
            self._wait_for_a_batch()
        time.sleep(rng.uniform(0.0, 0.5))  # anywhere in the next one
        if self.current.poll() is not None:
            self._check(self.current)
            self.current = self.start()
        kind = rng.choice(["worker", "worker", "driver", "all", "zombie"])
        pid = self.current.pid
        if kind == "worker":
            with suppress(psutil.NoSuchProcess):
                if children := psutil.Process(pid).children():
                    rng.choice(children).kill()
        elif kind == "driver":  # its workers go on
            self.current.kill()
            self.current = self.start()
        elif kind == "all":
            _signal(self.current, signal.SIGKILL)
            self.current = self.start()
        else:  # all of it wakes up while its successor is at work
            paused = self.current
            _signal(paused, signal.SIGSTOP)
            self.current = self.start()
            time.sleep(rng.uniform(0.0, 2.0))
            _signal(paused, signal.SIGCONT)
        self.happened[kind] += 1

    def _wait_for_a_batch(self) -> None:
        before, until = newest(self._commits), time.monotonic() + PATIENCE_S
        while newest(self._commits) == before:
            assert time.monotonic() < until, self._out.read_text()[-4000:]
            if self.current.poll() is not None:
                self._check(self.current)
                self.current = self.start()
            time.sleep(0.01)

    def finish(self) -> None:
        """Until a driver ends by itself, and all others have ended too."""
        while self.current.wait(PATIENCE_S) != 0:
            self._check(self.current)
            self.current = self.start()
        for driver in self.drivers:
            driver.wait(PATIENCE_S)
            self._check(driver)

    def _check(self, ended: subprocess.Popen[bytes]) -> None:
        known = (0, -signal.SIGKILL, REPLACED, CONFLICT, GIVEN_UP)
        assert ended.returncode in known, self._out.read_text()[-4000:]

    def end(self) -> None:
        for driver in self.drivers:
            _signal(driver, signal.SIGKILL)
            driver.wait()


def _signal(driver: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, number)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("engine", "faults"),
    [
        pytest.param(RunningBroker, 8, id="embedded"),
        pytest.param(RunningBroker, 80, id="embedded-long", marks=LONG),
        pytest.param(RunningApacheKafka, 80, id="apache-long", marks=LONG),
    ],
)
def test_each_record_is_there_once(
    engine: Callable[[dict[str, str]], Any], faults: int, tmp_path: Path
) -> None:
    """1. A driver writes batches; workers and drivers are killed, drivers paused and resumed.
    2. The last driver completes its batch; all earlier ones have ended.
    3. Readers of committed records see the rows of all committed batches, each once.
    """
    seed = int(os.environ.get("ODRADEK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"ODRADEK_SEED={seed}")
    with engine({"auto.create.topics.enable": "false"}) as broker:
        pipelines = Pipelines(broker.bootstrap, tmp_path)
        topic = pipelines.topic(3)
        for name in ("offsets", "commits"):
            (tmp_path / name).mkdir()
        running = Faults(pipelines, topic, tmp_path, seed)
        try:
            while running.happened.total() < faults:
                running.one()
            (tmp_path / "enough").touch()
            running.finish()
            written = Counter(int(m.value() or b"") for m in pipelines.records(topic))
        finally:
            running.end()
        last = newest(tmp_path / "commits")
        expected = Counter(
            one for batch in range(last + 1) for writer in range(WRITERS)
            for one in ids(batch, writer)
        )  # fmt: skip
        print(f"{dict(running.happened)}: {last + 1} batches, {written.total()} records")
        assert written == expected
