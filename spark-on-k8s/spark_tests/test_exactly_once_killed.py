"""Exactly once into a topic while drivers and their workers are killed, paused and resumed.

Faults come from a seed, which is printed; ODRADEK_SEED repeats it, ODRADEK_FAULTS says how many.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek_api.pipeline.status import JobStatus
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server
from odradek_testkit.pipelines import Pipelines

import msgspec  # isort: skip

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,  # some twenty drivers, one after the other
    pytest.mark.timeout(7200),
]

FAULTS = int(os.environ.get("ODRADEK_FAULTS", "50"))
PATIENCE_S = 600.0
JSON = {"type": "json", "schema": "id INT NOT NULL, key STRING NOT NULL"}
ENGINES: dict[str, Callable[[dict[str, str]], Any]] = {
    "embedded": RunningBroker,
    "apache": RunningApacheKafka,
}


class Drivers:
    """Drivers of one pipeline; `old` ones are paused while a successor works."""

    def __init__(self, pipelines: Pipelines, document: dict[str, Any]) -> None:
        self.directory = pipelines.directory
        self._document = document
        self._number = 0
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, **spec: Any) -> subprocess.Popen[bytes]:
        self._number += 1
        document = {**self._document, "spec": {**self._document["spec"], **spec}}
        document["statusFile"] = str(self.directory / f"status-{self._number}.json")
        path = self.directory / f"job-{self._number}.json"
        path.write_text(json.dumps(document))
        with open(self.directory / f"driver-{self._number}.out", "wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "odradek_spark.main", str(path)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.running.append(process)
        return process

    @property
    def output(self) -> str:
        """Of the driver that was started last."""
        return (self.directory / f"driver-{self._number}.out").read_text()[-4000:]

    def status(self, number: int | None = None) -> JobStatus | None:
        try:
            text = (self.directory / f"status-{number or self._number}.json").read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(text, type=JobStatus)

    def wait_for_a_batch(self, process: subprocess.Popen[bytes]) -> None:
        def done() -> bool:
            assert process.poll() is None, self.output
            said = self.status()
            return said is not None and "main" in said.queries

        eventually(done, "the driver made no batch")

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.running.remove(process)


def eventually(look: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def workers(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The Python processes that write: the children of pyspark's daemon."""
    with suppress(psutil.NoSuchProcess):
        return [
            process
            for process in psutil.Process(driver.pid).children(recursive=True)
            if (parent := process.parent()) is not None
            and any("pyspark.daemon" in word for word in parent.cmdline())
        ]
    return []


class Producing(threading.Thread):
    def __init__(self, pipelines: Pipelines, topic: str, seed: int) -> None:
        super().__init__()
        self.count = 0
        self._rng = random.Random(seed)
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": pipelines.bootstrap, "enable.idempotence": True}
        )
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.wait(0.1):
            for _ in range(10):
                value = {"id": self.count, "key": f"k{self._rng.randrange(50)}"}
                self._producer.produce(self._topic, json.dumps(value))
                self.count += 1
            self._producer.poll(0)

    def stop(self) -> int:
        self._stop_now.set()
        self.join()
        assert self._producer.flush(PATIENCE_S) == 0
        return self.count


@pytest.fixture(params=list(ENGINES))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with ENGINES[request.param]({"auto.create.topics.enable": "false"}) as running:
        yield running


def ends(pipelines: Pipelines, topic: str) -> int:
    """Offsets used in all partitions: those of records and of the ends of transactions."""
    consumer = Consumer({"bootstrap.servers": pipelines.bootstrap, "group.id": "ends"})
    found = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    total = sum(consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in found)
    consumer.close()
    return total


def test_output_equals_input_after_any_faults(server: Server, tmp_path: Path) -> None:
    """1. A producer writes all the time; a pipeline copies it, in many small batches.
    2. Faults: a worker dies; the driver and all of its processes die and a successor starts; the
       driver is paused, a successor works, and the paused one is resumed while it works.
    3. At the end each record is in the sink once, for readers of committed records.
    """
    seed = int(os.environ.get("ODRADEK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"ODRADEK_SEED={seed}")
    rng = random.Random(seed)
    pipelines = Pipelines(server.bootstrap, tmp_path)
    source, sink = pipelines.topic(4), pipelines.topic(3)
    read: dict[str, Any] = {"topics": [source], "format": JSON}
    document = pipelines.document(
        mode="streaming",
        sources=[{**read, "maxOffsetsPerTrigger": 300}],
        sink={"topic": {"name": sink, "key": "key", "delivery": "exactlyOnce"}},
        sparkConf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    )
    drivers = Drivers(pipelines, document | {"master": "local[2,8]"})
    producing = Producing(pipelines, source, seed)
    producing.start()
    happened: Counter[str] = Counter()
    try:
        current = drivers.start()
        drivers.wait_for_a_batch(current)
        while happened.total() < FAULTS:
            fault = rng.choices(["worker", "driver", "zombie"], [6, 3, 1])[0]
            time.sleep(rng.uniform(0.0, 1.5))  # anywhere in a batch
            if fault == "worker":
                found = workers(current)
                if not found:
                    continue
                with suppress(psutil.NoSuchProcess):
                    rng.choice(found).kill()
                if current.poll() is not None:  # Spark gave the batch up
                    drivers.running.remove(current)
                    current = drivers.start()
                    drivers.wait_for_a_batch(current)
            elif fault == "driver":
                drivers.stop(current)
                current = drivers.start()
                drivers.wait_for_a_batch(current)
            else:
                current = _resume_beside_its_successor(drivers, current, rng)
            happened[fault] += 1
        drivers.stop(current)
        count = producing.stop()
        last = drivers.start(mode="availableNow", sources=[read])  # all that is left at once
        assert last.wait(PATIENCE_S) == 0, drivers.output
        written = Counter(value["id"] for value in pipelines.values(sink))
        extra = ends(pipelines, sink) - written.total()
        print(f"{dict(happened)}: {count} records in, {written.total()} out; {extra} offsets of "
              "markers and aborted records")  # fmt: skip
        assert [n for n in range(count) if n not in written] == []
        assert [n for n, times in written.items() if times > 1] == []
    finally:
        producing.stop()
        for process in list(drivers.running):
            drivers.stop(process)


def _resume_beside_its_successor(
    drivers: Drivers, paused: subprocess.Popen[bytes], rng: random.Random
) -> subprocess.Popen[bytes]:
    """The paused driver wakes up in the middle of its batch, while its successor writes."""
    number = drivers._number
    os.killpg(paused.pid, signal.SIGSTOP)
    successor = drivers.start()
    drivers.wait_for_a_batch(successor)
    os.killpg(paused.pid, signal.SIGCONT)
    eventually(lambda: paused.poll() is not None, "the resumed driver did not end")
    said = drivers.status(number)
    assert said is not None
    assert said.state == "Failed", said
    drivers.running.remove(paused)
    time.sleep(rng.uniform(0.0, 1.0))
    if successor.poll() is not None:
        drivers.running.remove(successor)
        successor = drivers.start()
        drivers.wait_for_a_batch(successor)
    return successor
