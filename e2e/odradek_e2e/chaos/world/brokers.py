"""The brokers of one round: processes that a supervisor restarts, as Kubernetes would.

    brokers = Brokers("embedded", size, network, directory)
    brokers[2].kill(); brokers[2].start()

Both engines run with short sessions and the replication settings of a careful user: three replicas,
min.insync.replicas 2, no unclean election. A process that exits by itself is started again after
RESTART_S, and its exit code is remembered: only a broken disk explains one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from odradek_cli.processes import BROKER_MODULE
from odradek_e2e.chaos.world.clocks import ProcessClock
from odradek_e2e.chaos.world.disks import Disk
from odradek_e2e.chaos.world.namespaces import CONTROLLER_PORT, PORT, Network, host
from odradek_testkit.engines import QUICK_JVM, RunningApacheKafka, java_command

CLUSTER_ID = "b2RyYWRlay1jaGFvcy0xMQ"
PLANTED_MODULE = "odradek_e2e.chaos.world.planted_broker"
RESTART_S = 1.0
STOP_S = 40.0
VOTERS_MAX = 3
EMBEDDED, APACHE = "embedded", "apache"
RACKS = "abc"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
# On a machine with far more runnable processes than cores, sessions of 2.5 s end by themselves.
PATIENT_FROM_LOAD = 5.0  # runnable processes per core
PATIENT = {
    "broker.session.timeout.ms": "9000",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.quorum.fetch.timeout.ms": "6000",
    "replica.lag.time.max.ms": "15000",
}
# Apache Kafka's defaults are 9 s and 2 s; the campaign compares behaviour, not patience.
APACHE_SETTINGS = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "8000",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


class Broker:
    """One broker over all its processes."""

    def __init__(self, number: int, command: list[str], directory: Path, disk: Disk) -> None:
        self.number = number
        self.directory = directory
        self.disk = disk
        self.clock = ProcessClock(directory / "clock")
        self.env: dict[str, str] = {}
        self.exits: list[tuple[float, int]] = []  # of processes that ended by themselves
        self.starts = 0
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._lock = threading.RLock()
        self._restart_at = 0.0

    @property
    def address(self) -> str:
        return f"{host(self.number)}:{PORT}"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def plant(self, bug: str) -> None:
        """From its next start on it is wrong on purpose; engine embedded only."""
        at = self._command.index(BROKER_MODULE)
        self._command[at : at + 1] = [PLANTED_MODULE, bug]
        self.env["ODRADEK_COMPILED"] = "0"

    def start(self) -> None:
        with self._lock:
            self._wanted = True
            if self._process is None:
                self._spawn()

    def _spawn(self) -> None:
        env = {**os.environ, **self.env, **self.clock.environment}
        with open(self.log, "ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env
            )
        self.starts += 1

    def signal(self, number: int) -> None:
        with self._lock:
            if self._process is not None:
                self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; it stays down until `start`."""
        with self._lock:
            self._wanted = False
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()

    def stop(self) -> int:
        """SIGTERM, and SIGKILL when it does not end; the exit code."""
        with self._lock:
            self._wanted = False
            process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return -signal.SIGKILL

    def supervise(self, now: float, may_start: bool) -> None:
        """Called often: notices that the process ended, and starts it again."""
        with self._lock:
            if self._process is not None and (code := self._process.poll()) is not None:
                self.exits.append((now, code))
                self._process = None
                self._restart_at = now + RESTART_S
            if self._wanted and self._process is None and now >= self._restart_at and may_start:
                self._spawn()


class Brokers:
    """All brokers of a round, and the thread that restarts them."""

    def __init__(self, brokers: Mapping[int, Broker]) -> None:
        self._all = dict(brokers)
        self.broken: set[int] = set()  # their disk is not there: the supervisor waits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._supervise, daemon=True)

    def __getitem__(self, number: int) -> Broker:
        return self._all[number]

    @property
    def numbers(self) -> list[int]:
        return list(self._all)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self._all.values())

    def start(self) -> None:
        for broker in self._all.values():
            broker.start()
        self._thread.start()

    def each(self, act: Callable[[Broker], object]) -> None:
        for broker in self._all.values():
            act(broker)

    def _supervise(self) -> None:
        while not self._over.wait(0.1):
            for number, broker in self._all.items():
                broker.supervise(time.monotonic(), number not in self.broken)

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self.each(Broker.kill)


def make(
    engine: str, network: Network, directory: Path, disks: Mapping[int, str], *, patient: bool
) -> Brokers:
    """The brokers of a round, not yet started; `disks`: broker → the kind of its disk."""
    size, more = len(disks), PATIENT if patient else {}
    made: dict[int, Broker] = {}
    for number in range(1, size + 1):
        own = directory / f"broker-{number}"
        own.mkdir(parents=True)
        disk = Disk(disks[number], own / "data", own / "disk.img")
        command = _COMMANDS[engine](number, size, own, more)
        made[number] = Broker(number, [*network.enter(number), *command], own, disk)
    return Brokers(made)


def _common(number: int, size: int, own: Path, port: int) -> dict[str, str]:
    voters = range(1, min(size, VOTERS_MAX) + 1)
    return {
        "node.id": str(number),
        "broker.rack": RACKS[(number - 1) % len(RACKS)],
        "controller.quorum.voters": ",".join(f"{i}@{host(i)}:{port}" for i in voters),
        "log.dirs": str(own / "data" / "logs"),
        **SETTINGS,
    }


def is_overloaded() -> bool:
    """Whether the brokers get longer sessions than by default; the report of a round says so."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) > PATIENT_FROM_LOAD


def _embedded(number: int, size: int, own: Path, more: Mapping[str, str]) -> list[str]:
    settings = {
        **_common(number, size, own, PORT),
        "listeners": f"PLAINTEXT://{host(number)}:{PORT}",
        "odradek.admin.listener": "127.0.0.1:0",
        "odradek.cluster.id": CLUSTER_ID,
        **more,
    }
    flags = [f"--override={name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", BROKER_MODULE, f"--testing-control={own / 'control'}", *flags]


def _apache(number: int, size: int, own: Path, more: Mapping[str, str]) -> list[str]:
    settings = {**_common(number, size, own, CONTROLLER_PORT), **APACHE_SETTINGS}
    roles, listeners = "broker", f"PLAINTEXT://{host(number)}:{PORT}"
    if number <= VOTERS_MAX:
        roles = "broker,controller"
        listeners += f",CONTROLLER://{host(number)}:{CONTROLLER_PORT}"
    settings |= more
    settings |= {
        "process.roles": roles, "listeners": listeners, "controller.listener.names": "CONTROLLER",
        "advertised.listeners": f"PLAINTEXT://{host(number)}:{PORT}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }  # fmt: skip
    server = _Formatted(settings, directory=own)
    server.format()
    return java_command("kafka.Kafka", str(server.properties), jvm=QUICK_JVM)


class _Formatted(RunningApacheKafka):
    """Writes the properties and formats the directory; brokers.py runs the process itself."""

    cluster_id = CLUSTER_ID


_COMMANDS = {EMBEDDED: _embedded, APACHE: _apache}
