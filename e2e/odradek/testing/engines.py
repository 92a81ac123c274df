"""The servers behind a `Kafka`: our brokers or Apache Kafka's, started through the launcher.

The classes are those of our own test kit (odradek_testkit.engines); only the way in which the
process is started differs, so that it ends with the test run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from odradek.testing.errors import UnsupportedError
from odradek_cli.processes import ChildProcess
from odradek_testkit.engines import RunningApacheKafka, RunningBroker
from odradek_testkit.launching import launcher
from odradek_testkit.ports import free_ports

ENGINES = ("odradek", "apache")
CLUSTER_ID = "b2RyYWRlay10ZXN0aW5nMQ"
VOTERS_MAX = 3
START_DEADLINE_S = 60.0
SOCKET_PATH_MAX = 107  # bytes, of the kernel
CONTROL = "control"  # the socket of testing mode, in the directory of the broker

# For tests: small internal topics, and groups that form at once instead of after 3 s.
DEFAULTS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class OwnServer(RunningBroker):
    """Our broker, in testing mode: with a control socket."""

    @property
    def control_path(self) -> Path:
        path = self.directory / CONTROL
        if len(str(path)) > SOCKET_PATH_MAX:
            raise UnsupportedError(
                f"{path} is too long for a Unix socket: set TMPDIR to a shorter directory"
            )
        return path

    def extra_flags(self) -> Sequence[str]:
        return [f"--testing-control={self.control_path}"]


class ApacheServer(RunningApacheKafka):
    """Apache Kafka, broker and controller in one JVM."""

    def spawn(self, command: Sequence[str], *, stdout: int | None = None) -> ChildProcess:
        assert self.process is None, f"{self.name} is already running"
        self.process = launcher().start(
            {"command": list(command)}, self.log_path, self.env, pipe=stdout is not None
        )
        return self.process


def make_servers(
    engine: str,
    count: int,
    racks: Sequence[str],
    config: Mapping[str, str],
    directory: Path,
    protocol: str = "PLAINTEXT",
) -> list[OwnServer | ApacheServer]:
    """Servers with node ids 1, 2 …, on free ports that they keep over restarts; none is started."""
    shutil.rmtree(directory, ignore_errors=True)
    replicas = str(min(count, 3))
    shared = {
        **DEFAULTS,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
    }
    if engine == "apache":
        return _apache_servers(count, racks, {**shared, **config}, directory)
    ports = free_ports(count)
    if count > 1:
        shared["controller.quorum.voters"] = _voters(ports)
        shared["odradek.cluster.id"] = CLUSTER_ID
    return [
        OwnServer(
            {
                "node.id": str(number),
                "listeners": f"{protocol}://127.0.0.1:{port}",
                **_rack(racks, number),
                **shared,
                **config,
            },
            directory=directory / f"broker-{number}",
        )
        for number, port in enumerate(ports, 1)
    ]


def start_all(servers: Sequence[OwnServer | ApacheServer]) -> None:
    """At once, because one of three brokers has no quorum."""
    if len(servers) == 1:
        servers[0].start(START_DEADLINE_S)
        return
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(lambda server: server.start(START_DEADLINE_S), servers))


def text_of(value: object) -> str:
    """True → true, as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _apache_servers(
    count: int, racks: Sequence[str], shared: Mapping[str, str], directory: Path
) -> list[OwnServer | ApacheServer]:
    ports = free_ports(2 * count)
    clients, controllers = ports[:count], ports[count:]
    return [
        ApacheServer(
            {
                "node.id": str(number),
                "controller.quorum.voters": _voters(controllers),
                "listeners": f"PLAINTEXT://127.0.0.1:{clients[number - 1]},"
                f"CONTROLLER://127.0.0.1:{controllers[number - 1]}",
                **_rack(racks, number),
                **shared,
            },
            directory=directory / f"broker-{number}",
        )
        for number in range(1, count + 1)
    ]


def _voters(ports: Sequence[int]) -> str:
    voters = enumerate(ports[:VOTERS_MAX], 1)
    return ",".join(f"{number}@127.0.0.1:{port}" for number, port in voters)


def _rack(racks: Sequence[str], number: int) -> dict[str, str]:
    return {"broker.rack": racks[(number - 1) % len(racks)]} if racks else {}
