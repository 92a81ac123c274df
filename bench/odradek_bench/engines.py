"""Both engines behind one interface: servers that start, stop, are killed, and are measured.

Ours runs with its defaults on the Python of its container image: Debian's, if the machine has the
same version of it (`--python` names another). Apache Kafka 4.3.1 runs with its own
defaults too: KRaft, broker and controller in one JVM, and the heap and collector flags of its
kafka-server-start script (1 GB, G1). Both keep their data below one directory of the run, on the
same disk, and listen on loopback only. Used by runner.py, which shares one warm server per engine
between most cases, and by cases that need a server or a cluster of their own.

    with running(many(ODRADEK, directory, size=3)) as servers:      # 3 brokers, one quorum
        servers.bootstrap, servers.pids
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import odradek_bench
import odradek_broker
from odradek.testing.certificates import write_certificates
from odradek_bench.endpoints import tls_address
from odradek_cli.processes import ChildProcess
from odradek_testkit.engines import QUICK_JVM, RunningApacheKafka, RunningBroker, Server
from odradek_testkit.ports import free_ports

ODRADEK = "odradek"
KAFKA = "kafka"
ENGINES = (KAFKA, ODRADEK)

START_DEADLINE_S = 120.0
CLUSTER_ID = "b2RyYWRlay1iZW5jaC0xMQ"

# The JVM flags of bin/kafka-server-start.sh when KAFKA_HEAP_OPTS is not set.
KAFKA_JVM = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip


class ApacheKafka(RunningApacheKafka):
    """Apache Kafka with the JVM flags of production, or quick ones for a smoke run."""

    cluster_id = CLUSTER_ID

    def __init__(
        self, overrides: Mapping[str, str] | None, *, directory: Path, quick: bool
    ) -> None:
        super().__init__(overrides, directory=directory)
        self.jvm = QUICK_JVM if quick else KAFKA_JVM

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        super().start(deadline_s)


# Debian's interpreter is built with profile-guided and link-time optimisation, many others
# (pyenv's, as a rule) are not; ours needs about 15 % less CPU with it.
IMAGE_PYTHON = "/usr/bin/python3"


def image_python() -> str:
    """The interpreter of our image, if this machine has it in the version of this environment."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
    try:
        said = subprocess.run(
            [IMAGE_PYTHON, "-c", code], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return sys.executable
    return IMAGE_PYTHON if said.stdout.strip() == wanted else sys.executable


class Odradek(RunningBroker):
    """Our broker on a chosen interpreter, with this environment's packages."""

    python = sys.executable  # set by __main__.py
    module = "odradek_broker.main"  # or one that measures it: watched_broker.py

    def spawn(self, command: Sequence[str], *, stdout: int | None = None) -> ChildProcess:
        self.env["PYTHONDONTWRITEBYTECODE"] = ""  # as in our image: nothing is compiled at a start
        if self.python != sys.executable:
            library = os.path.dirname(os.__file__)  # the interpreter has its own standard library
            ours = [path for path in sys.path if path and not path.startswith(library)]
            # The editable install is known to this environment's interpreter only.
            packages = (odradek_broker, odradek_bench)
            ours += [str(Path(package.__file__ or "").parents[1]) for package in packages]
            self.env["PYTHONPATH"] = ":".join(path for path in ours if not path.endswith(".zip"))
        return super().spawn([self.python, "-m", self.module, *command[3:]], stdout=stdout)


class Servers:
    """One broker, or a few that form a cluster; ended by their own pids."""

    def __init__(self, engine: str, members: list[Server], tls: str = "") -> None:
        self.engine = engine
        self.members = members
        self._tls = tls

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members if member.process)

    @property
    def measured(self) -> str:
        """The address for the load of a case; everything else goes to `bootstrap`."""
        return self._tls or self.bootstrap

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self.members if member.process]

    @property
    def alive(self) -> bool:
        return all(m.process is not None and m.process.poll() is None for m in self.members)

    @property
    def only(self) -> Server:
        (member,) = self.members
        return member

    def start(self) -> None:
        """All at once, because one broker of a cluster has no quorum."""
        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(lambda member: member.start(), self.members))

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(lambda member: member.stop(), self.members))

    def log_files(self, topic: str) -> list[Path]:
        """The live segments of a topic: none that are being cleaned, swapped or deleted."""
        found = [p for m in self.members for p in m.data_dir.glob(f"{topic}-*/*.log")]
        return sorted(path for path in found if path.exists())


def one(
    engine: str, directory: Path, overrides: Mapping[str, str] | None = None, *, quick: bool = False
) -> Servers:
    directory.mkdir(parents=True, exist_ok=True)
    if engine == ODRADEK:
        return Servers(engine, [Odradek(overrides, directory=directory)])
    return Servers(engine, [ApacheKafka(overrides, directory=directory, quick=quick)])


def one_with_tls(
    engine: str, directory: Path, overrides: Mapping[str, str] | None = None, *, quick: bool = False
) -> Servers:
    """One broker with a plain listener and one with TLS (endpoints.py), both on loopback."""
    secured, address = tls_listeners(directory)
    settings = {**(overrides or {}), **secured}
    if engine == KAFKA:
        controller = f"127.0.0.1:{free_ports(1)[0]}"
        settings["listeners"] += f",CONTROLLER://{controller}"
        settings["controller.quorum.voters"] = f"1@{controller}"
        settings["listener.security.protocol.map"] = (
            "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        )
    made = one(engine, directory, settings, quick=quick)
    return Servers(engine, made.members, address)


def tls_listeners(directory: Path) -> tuple[dict[str, str], str]:
    """The settings of a plain listener and one with TLS, and the address of the latter."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_file, key_store = directory / "ca.pem", directory / "broker.pem"
    write_certificates(ca_file, key_store)
    plain, secured = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = {
        "listeners": f"PLAINTEXT://{plain},SSL://{secured}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.enabled.protocols": "TLSv1.3",
    }
    return settings, tls_address(secured, ca_file)


def many(
    engine: str,
    directory: Path,
    size: int,
    overrides: Mapping[str, str] | None = None,
    *,
    quick: bool = False,
) -> Servers:
    """Brokers 1 … size, all of them voters, each with its own ports and directory."""
    ports = free_ports(2 * size)
    clients, controllers = ports[:size], ports[size:]
    members: list[Server] = []
    for index in range(size):
        node = {"node.id": str(index + 1), **(overrides or {})}
        own = directory / f"{engine}-{index + 1}"
        if engine == KAFKA:
            voters = [f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(controllers)]
            node["controller.quorum.voters"] = ",".join(voters)
            node["listeners"] = (
                f"PLAINTEXT://127.0.0.1:{clients[index]},"
                f"CONTROLLER://127.0.0.1:{controllers[index]}"
            )
            members.append(ApacheKafka(node, directory=own, quick=quick))
        else:
            voters = [f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(clients)]
            node["controller.quorum.voters"] = ",".join(voters)
            node["listeners"] = f"PLAINTEXT://127.0.0.1:{clients[index]}"
            node["odradek.cluster.id"] = CLUSTER_ID
            members.append(Odradek(node, directory=own))
    return Servers(engine, members)


@contextmanager
def running(servers: Servers) -> Iterator[Servers]:
    """Starts the servers; stops them and removes their directories at the end."""
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
        for member in servers.members:
            shutil.rmtree(member.directory, ignore_errors=True)
