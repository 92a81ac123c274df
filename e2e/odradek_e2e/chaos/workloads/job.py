"""The common part of workloads: settings, recorder, and the signal that ends them."""

from __future__ import annotations

import json
import random
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from odradek_e2e.chaos.history import Recorder

HEAD = struct.Struct(">HQ")  # writer, number
# Shorter than the defaults where those would only make a round longer.
CLIENT = {
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.max.ms": 500,
    "log_level": 2,
}
# Longer than a round: when librdkafka gives a message up, it begins a new epoch and sends all that
# is not acknowledged again. A broker cannot know these for repetitions, so they are written twice.
PRODUCER = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 3_600_000}
CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 200,
    "fetch.error.backoff.ms": 100,
}


@dataclass
class Job:
    """The settings of a workload process, as its parent wrote them."""

    bootstrap: str
    directory: Path
    seed: int
    brokers: dict[int, str]
    options: dict[str, Any] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, text: str) -> Job:
        given = json.loads(text)
        return cls(
            given["bootstrap"], Path(given["directory"]), given["seed"],
            {int(number): address for number, address in given["brokers"].items()},
            given.get("options", {}),
        )  # fmt: skip

    def rng(self, who: str) -> random.Random:
        return random.Random(f"{who} {self.seed}")

    def recorder(self, subject: str, who: str) -> Recorder:
        return Recorder(self.directory, subject, who)

    def client(self, *more: dict[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, **CLIENT}
        for one in more:
            settings.update(one)
        return settings

    def producer(self, **more: Any) -> dict[str, Any]:
        return self.client(PRODUCER, more)

    def consumer(self, group: str, **more: Any) -> dict[str, Any]:
        return self.client(CONSUMER, {"group.id": group}, more)

    def end_on_sigterm(self) -> None:
        def end(_number: int, _frame: FrameType | None) -> None:
            self.over.set()

        signal.signal(signal.SIGTERM, end)


def in_threads(job: Job, loops: Sequence[Callable[[], None]]) -> None:
    """Runs each in a thread until the job is over; an exception in one of them ends the process."""
    failed: list[BaseException] = []

    def run(loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            failed.append(error)
            job.over.set()

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def error_of(failed: KafkaException) -> KafkaError:
    error = failed.args[0]
    assert isinstance(error, KafkaError)
    return error


def place_of(message: Message) -> tuple[int, int]:
    """Partition and offset of a message that was read or acknowledged."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    return partition, -1 if offset is None or offset < 0 else offset


def value_of(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value
