"""One round: a cluster, its workloads, the faults of a plan, and a history to be checked.

Runs inside the sandbox. What it leaves in its directory: the history, broker-N/broker.log,
workloads.log, and round.json with what was measured.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_e2e.chaos.faults import Faults, World
from odradek_e2e.chaos.history import Recorder
from odradek_e2e.chaos.schedule import Plan
from odradek_e2e.chaos.view import View
from odradek_e2e.chaos.world import brokers as engines
from odradek_e2e.chaos.world.namespaces import Network

START_LIMIT_S = 120.0
RECOVERY_LIMIT_S = 120.0
END_LIMIT_S = 200.0  # of a workload that was asked to end
FINAL_LIMIT_S = 400.0
WARM_UP_S = 2.0
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}
COMPACTED = {
    "cleanup.policy": "compact", "segment.bytes": str(1 << 20), "segment.ms": "3000",
    "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "4000",
}  # fmt: skip
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "log": (6, {}),
    "squeezed": (3, SMALL_SEGMENTS),
    "trim": (2, {"segment.bytes": str(1 << 20)}),
    "copy-in": (3, {}),
    "copy-out": (3, {}),
    "bank": (4, SMALL_SEGMENTS),
    "lists": (6, {}),
    "keys": (3, COMPACTED),
    "java": (3, {}),
}
READ, COMMITTED = "read_uncommitted", "read_committed"
FINAL_READS = (
    ("log", "log", READ, "runs"), ("squeezed", "squeezed", READ, "runs"),
    ("trim", "trim", READ, "runs"), ("copy-in", "copy-in", READ, "runs"),
    ("copy", "copy-out", COMMITTED, "raw"), ("bank", "bank", COMMITTED, "raw"),
    ("lists", "lists", COMMITTED, "raw"), ("keys", "keys", READ, "raw"),
    ("java", "java", READ, "raw"),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The options of a round."""

    engine: str
    directory: Path
    per_second: int
    java: bool
    planted: str  # the name of a planted bug, or empty
    workloads: tuple[str, ...] = ()  # only these; none: all


@dataclass
class Outcome:
    """round.json."""

    seed: int
    engine: str
    size: int
    episodes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # other than the history's anomalies
    exits: list[list[float]] = field(default_factory=list)  # broker, exit code
    recovered_s: float | None = None
    seconds: float = 0.0
    load: float = 0.0
    tracebacks: int = 0
    patient: bool = False  # long sessions, because the machine was overloaded


class Workload:
    """A client process."""

    def __init__(self, name: str, settings: dict[str, Any], log: Path) -> None:
        self.name = name
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek_e2e.chaos.workloads", name, json.dumps(settings)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, until: float) -> str:
        """The problems of the round; empty if there was none."""
        try:
            code = self._process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return f"the workload {self.name} did not end"
        return f"the workload {self.name} ended with exit code {code}" if code else ""

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


class Round:
    """`run` carries out a plan."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self._plan, self._settings = plan, settings
        self._directory = settings.directory
        numbers = range(1, plan.size + 1)
        self._network = Network(numbers, self._directory / "links.log")
        patient = engines.is_overloaded() and not settings.planted
        self._outcome = Outcome(plan.seed, settings.engine, plan.size, patient=patient)
        disks = dict(zip(numbers, plan.disks, strict=True))
        self._brokers = engines.make(
            settings.engine, self._network, self._directory, disks, patient=patient
        )
        if settings.planted:
            self._brokers.each(lambda broker: broker.plant(settings.planted))
        self._topics = {
            name: made
            for name, made in TOPICS.items()
            if self._runs({"copy-out": "copying"}.get(name, name))
        }
        self._view = View({n: self._brokers[n].address for n in numbers})
        self._log = self._directory / "workloads.log"

    def run(self) -> Outcome:
        began = time.monotonic()
        try:
            self._brokers.start()
            self._create_topics()
            workloads = self._start_workloads()
            time.sleep(WARM_UP_S)
            self._cause_faults(workloads)
            self._recover()
            self._end(workloads)
            self._read_everything()
        except Exception as error:
            self._problem(f"{type(error).__name__}: {error}")
        finally:
            self._sum_up(began)
            self._brokers.close()
        return self._outcome

    def _problem(self, text: str) -> None:
        self._outcome.problems.append(text)

    def _create_topics(self) -> None:
        give_up = time.monotonic() + START_LIMIT_S
        missing = dict(self._topics)
        while missing:
            admin = AdminClient({"bootstrap.servers": self._brokers.bootstrap, "log_level": 0})
            new = [NewTopic(name, count, 3, config=config)
                   for name, (count, config) in missing.items()]  # fmt: skip
            for name, future in admin.create_topics(new, request_timeout=10.0).items():
                try:
                    future.result(20.0)
                    del missing[name]
                except KafkaException as failed:
                    if failed.args[0].name() == "INVALID_CONFIG":
                        raise
                    if failed.args[0].name() == "TOPIC_ALREADY_EXISTS":
                        del missing[name]
            if missing and time.monotonic() > give_up:
                raise RuntimeError(f"the topics could not be created: {sorted(missing)}")
            time.sleep(0.3)
        for name in self._topics:
            if not self._view.wait_in_sync(name, START_LIMIT_S):
                raise RuntimeError(f"{name} has never been in sync")

    def _start_workloads(self) -> list[Workload]:
        rate = self._settings.per_second
        moved = {name: count for name, (count, _) in self._topics.items()}
        squeezed = {"compression.type": "lz4", "linger.ms": 20}
        jobs: list[tuple[str, str, dict[str, Any]]] = [
            ("log", "writers", _writing("log", 2, rate)),
            ("squeezed", "writers", _writing("squeezed", 1, rate // 4, settings=squeezed)),
            ("trim", "writers", _writing("trim", 1, 200)),
            ("copy-in", "writers", _writing("copy-in", 1, 150)),
            ("readers", "readers",
             {"subject": "log", "topic": "log", "partitions": 6, "isolation": READ}),
            ("bank", "bank", {"topic": "bank", "partitions": 4, "threads": 4}),
            ("lists", "lists", {"topic": "lists", "partitions": 6, "threads": 3}),
            ("copying", "copying", {"source": "copy-in", "target": "copy-out",
                                    "protocol": self._plan.group_protocol}),
            ("members", "members", {"topic": "copy-in", "partitions": 3}),
            ("keys", "keys", {"topic": "keys", "partitions": 3, "keys": 150, "per_second": 150}),
            ("watch", "watch", {"topics": moved}),
            ("admin", "admin", {"topics": moved, "trim": ["trim", 2], "size": self._plan.size}),
            ("java", "java", {"topic": "java", "per_second": 100}),
        ]  # fmt: skip
        return [
            Workload(name, self._job(options), self._log)
            for key, name, options in jobs
            if self._runs(key)
        ]

    def _runs(self, workload: str) -> bool:
        return (
            workload in self._settings.workloads
            if self._settings.workloads
            else (workload != "java" or self._settings.java)
        )

    def _job(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap": self._brokers.bootstrap, "directory": str(self._directory),
            "seed": self._plan.seed, "options": options,
            "brokers": {number: self._brokers[number].address for number in self._brokers.numbers},
        }  # fmt: skip

    def _cause_faults(self, workloads: list[Workload]) -> None:
        recorder = Recorder(self._directory, "faults", "all")
        faults = Faults(
            World(self._brokers, self._network, self._view, next(iter(self._topics)), recorder)
        )
        for episode in self._plan.episodes:
            faults.run(episode)
            self._outcome.episodes.append(str(episode))
            time.sleep(episode.rest_s)
            if any(workload.ended for workload in workloads):
                return  # `_end` says which
        recorder.close()

    def _recover(self) -> None:
        """All faults are healed: every partition must get a leader and all of its replicas."""
        began = time.monotonic()
        for name in self._topics:
            left_s = RECOVERY_LIMIT_S - (time.monotonic() - began)
            if not self._view.wait_in_sync(name, max(left_s, 1.0)):
                partitions = {p: (f.leader_id, f.replica_nodes, f.isr_nodes)
                              for p, f in self._view.partitions(name).items()}  # fmt: skip
                self._problem(f"{name} is not in sync {RECOVERY_LIMIT_S:.0f} s after all faults "
                              f"(leader, replicas, ISR): {partitions}")  # fmt: skip
        self._outcome.recovered_s = round(time.monotonic() - began, 2)

    def _end(self, workloads: list[Workload]) -> None:
        for workload in workloads:
            workload.end()
        until = time.monotonic() + END_LIMIT_S
        for workload in workloads:
            if problem := workload.wait(until):
                self._problem(problem)

    def _read_everything(self) -> None:
        reads = [
            [subject, topic, TOPICS[topic][0], isolation, form]
            for subject, topic, isolation, form in FINAL_READS
            if topic in self._topics
        ]
        job = self._job({"reads": reads, "copied": "copy-in"})
        problem = Workload("final", job, self._log).wait(time.monotonic() + FINAL_LIMIT_S)
        if problem:
            self._problem(problem)

    def _sum_up(self, began: float) -> None:
        outcome = self._outcome
        outcome.seconds = round(time.monotonic() - began, 1)
        outcome.load = os.getloadavg()[0]
        for number in self._brokers.numbers:
            broker = self._brokers[number]
            outcome.exits += [[number, code] for _, code in broker.exits]
            text = broker.log.read_text(errors="replace") if broker.log.exists() else ""
            outcome.tracebacks += text.count("Traceback (most recent call last)")
        (self._directory / "round.json").write_text(json.dumps(vars(outcome), indent=1))


def _writing(topic: str, writers: int, per_second: int, **more: Any) -> dict[str, Any]:
    return {"subject": topic, "topic": topic, "partitions": TOPICS[topic][0], "writers": writers,
            "per_second": per_second, **more}  # fmt: skip
