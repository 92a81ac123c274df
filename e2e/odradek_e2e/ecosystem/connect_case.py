"""Kafka Connect, two distributed workers: a file into a topic exactly once, and out of it again.

- runs: both workers form one Connect cluster; the source's task runs on one of them
- exactly-once source: that worker is killed with -9 while it works; the other one takes the task
  over, and each line of the file is in the topic once, in order, for readers of committed records
- sink: the connector that writes the topic to a file has written every line
- offsets: Connect reports the end of the file as the source's position, and the end of the topic
  as the sink's, which librdkafka sees as the offset of the group connect-PREFIX-sink
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_e2e.ecosystem.build import java_classes
from odradek_e2e.ecosystem.case import Case, Place
from odradek_e2e.ecosystem.contract import DEADLINE_S, Check, Unexpected, read, same
from odradek_e2e.ecosystem.running import Checks, Running
from odradek_testkit.engines import QUICK_JVM, TOOLS_DIR, kafka_version
from odradek_testkit.ports import free_ports

LINES = 2_000  # before the worker is killed; lines are added all the time until after that
PER_TRANSACTION = 10
CHECKS = ("runs", "exactly-once source (a worker is killed)", "sink", "offsets")


def java(name: str, main_class: str, *args: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
    return ["java", *QUICK_JVM, logging, "-cp", java_classes(name), main_class, *args]


def properties(path: Path, settings: Mapping[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


class Worker(Running):
    """One worker with its REST address."""

    def __init__(self, place: Place, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        prefix = place.prefix
        string = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": place.server.bootstrap,
            "group.id": f"{prefix}-connect",
            "key.converter": string,
            "value.converter": string,
            "listeners": f"http://{self.address}",
            "config.storage.topic": f"{prefix}-configs",
            "config.storage.replication.factor": 1,
            "offset.storage.topic": f"{prefix}-offsets",
            "offset.storage.replication.factor": 1,
            "offset.storage.partitions": 3,
            "offset.flush.interval.ms": 500,
            "status.storage.topic": f"{prefix}-status",
            "status.storage.replication.factor": 1,
            "status.storage.partitions": 3,
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 2000,
            "scheduled.rebalance.max.delay.ms": 500,
        }
        file = properties(place.directory / f"worker-{port}.properties", settings)
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(f"worker-{port}", java("connect", main, file), place.directory)

    def ask(self, path: str, given: object = None, method: str = "GET") -> Any:
        """The answer to a request; None while the worker does not answer, or cannot yet."""
        body = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            body,
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code in (404, 409, 500, 503):  # rebalancing, or not known there yet
                return None
            raise Unexpected(f"{path}: {error.code} {error.read().decode()}") from None
        except OSError:
            return None

    def task(self, connector: str) -> tuple[str, str]:
        """State and worker of the connector's only task."""
        status = self.ask(f"/connectors/{connector}/status")
        task = (status or {}).get("tasks") or [{"state": "none", "worker_id": ""}]
        if task[0]["state"] == "FAILED":
            raise Unexpected(f"the task of {connector} failed: {task[0].get('trace', '')[:1500]}")
        return task[0]["state"], task[0]["worker_id"]


class Files:
    """The lines of the source's file, and where they are seen."""

    def __init__(self, place: Place) -> None:
        self._bootstrap = place.server.bootstrap
        self.topic = f"{place.prefix}-lines"
        self.source = place.directory / "source.txt"
        self.sink = place.directory / "sink.txt"
        self.lines: list[str] = []

    def append(self, count: int) -> None:
        new = [f"line {number}" for number in range(len(self.lines), len(self.lines) + count)]
        self.lines += new
        with open(self.source, "a") as file:
            file.write("".join(f"{line}\n" for line in new))

    def complete(self) -> bool:
        """One line more, each time: FileStreamSource returns the last ones only when there is."""
        there = self.in_topic()
        if len(there) >= len(self.lines):
            return True
        self.append(1)
        return False

    def in_topic(self) -> list[str]:
        return [(m.value() or b"").decode() for m in read(self._bootstrap, self.topic)]

    def in_sink(self) -> set[str]:
        return set(self.sink.read_text().splitlines()) if self.sink.exists() else set()


def run(place: Place) -> list[Check]:
    workers = [Worker(place, port) for port in free_ports(2)]
    admin = AdminClient({"bootstrap.servers": place.server.bootstrap})
    files = Files(place)
    admin.create_topics([NewTopic(files.topic, 1, 1)])[files.topic].result(DEADLINE_S)
    files.append(LINES)
    checks = Checks()
    runs, exactly_once, sink, offsets = CHECKS
    with workers[0], workers[1]:
        checks.run(runs, lambda: _runs(place, workers, files))
        checks.run(exactly_once, lambda: _killed(place, workers, files))
        left = next((worker for worker in workers if worker.running), workers[0])
        checks.run(sink, lambda: left.wait(lambda: files.in_sink() >= set(files.lines),
                                           "every line is in the sink's file"))  # fmt: skip
        checks.run(offsets, lambda: _offsets(place, left, files, admin))
    return checks.found


def _put(worker: Worker, name: str, config: Mapping[str, str]) -> None:
    worker.wait(
        lambda: worker.ask(f"/connectors/{name}/config", config, "PUT") is not None,
        f"{name} is created",
    )


def _runs(place: Place, workers: list[Worker], files: Files) -> None:
    for worker in workers:
        worker.wait(lambda: worker.ask("/") is not None, f"{worker.name} answers")  # noqa: B023
    source, sink = f"{place.prefix}-source", f"{place.prefix}-sink"
    package = "org.apache.kafka.connect.file"
    _put(workers[0], source, {
        "connector.class": f"{package}.FileStreamSourceConnector", "tasks.max": "1",
        "file": str(files.source), "topic": files.topic, "batch.size": str(PER_TRANSACTION),
        "exactly.once.support": "required", "transaction.boundary": "poll",
    })  # fmt: skip
    for worker in workers:
        worker.wait(lambda: worker.task(source)[0] == "RUNNING", f"{source} runs")  # noqa: B023
    _put(workers[1], sink, {
        "connector.class": f"{package}.FileStreamSinkConnector", "tasks.max": "1",
        "file": str(files.sink), "topics": files.topic,
    })  # fmt: skip


def _killed(place: Place, workers: list[Worker], files: Files) -> None:
    source = f"{place.prefix}-source"
    workers[0].wait(lambda: len(files.in_topic()) > 0, "the first lines are in the topic")
    _, owner = workers[0].task(source)
    victim = next((worker for worker in workers if worker.address == owner), None)
    if victim is None:
        raise Unexpected(f"the task runs on {owner!r}, which is no worker")
    (other,) = [worker for worker in workers if worker is not victim]
    over = threading.Event()

    def add() -> None:
        while not over.wait(0.01):
            files.append(2 * PER_TRANSACTION)

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add)
        try:
            before = len(files.in_topic())
            victim.wait(lambda: len(files.in_topic()) > before, "added lines are in the topic")
            victim.kill()
            taken = ("RUNNING", other.address)
            other.wait(lambda: other.task(source) == taken, "the task was taken over")
        finally:
            over.set()
        adding.result()
    other.wait(files.complete, "every line is in the topic")
    same(files.in_topic(), files.lines)


def _offsets(place: Place, worker: Worker, files: Files, admin: AdminClient) -> None:
    size = files.source.stat().st_size

    def at_the_end() -> bool:
        answer = worker.ask(f"/connectors/{place.prefix}-source/offsets")
        return any(one["offset"].get("position") == size for one in (answer or {})["offsets"])

    worker.wait(at_the_end, "the source's stored position is the end of its file")
    group = f"connect-{place.prefix}-sink"
    end = read(place.server.bootstrap, files.topic)[-1].offset() or 0

    def committed() -> bool:
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(files.topic, 0)])]
        answer = admin.list_consumer_group_offsets(asked)[group].result(DEADLINE_S)
        return bool(answer.topic_partitions[0].offset > end)

    worker.wait(committed, f"{group} has committed the end of the topic")


CASE = Case("kafka-connect", f"Kafka Connect {kafka_version()}, distributed", run, checks=CHECKS)
