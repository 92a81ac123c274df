"""Starts real broker processes for tests: ours, or Apache Kafka to show that a test holds there.

Callers: the fixtures in conftest.py, the CLI tests, and tests that compare with Apache Kafka's own
tools. Every server is a context manager with its own directory and free ports; it waits for
readiness with a deadline (never a fixed sleep) and ends only the process that it started.

    with RunningBroker({"auto.create.topics.enable": "false"}) as broker:
        kafka_tool("org.apache.kafka.tools.TopicCommand",
                   "--bootstrap-server", broker.bootstrap, "--list").stdout

Apache Kafka comes from its Maven artifacts (kafka-tools/pom.xml), copied once per content of that
file into $XDG_CACHE_HOME/odradek/kafka-4.3.1-… (95 jars, 59 MB), each checked against its hash
(jars.sha256); ODRADEK_KAFKA_JARS names another directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_cli.processes import START_DEADLINE_S, BrokerProcess, ServerProcess

TOOLS_DIR = Path(__file__).parent / "kafka-tools"

# Small heap, cheapest compiler and collector: a tool lives for a second or two on a shared core.
JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")

OWN_DIRECTORY = "odradek-test-"  # removed at the end; a directory that was given is kept


class ToolsMissingError(Exception):
    """Java or Maven is not installed; the message names the command that installs both."""


# -- Apache Kafka's jars and tools -----------------------------------------------------------------


def kafka_version() -> str:
    found = re.search(r"<kafka\.version>(.+?)</", (TOOLS_DIR / "pom.xml").read_text())
    assert found, "kafka-tools/pom.xml names no kafka.version"
    return found[1]


def kafka_jars() -> Path:
    """The directory with Apache Kafka's jars; the first caller of all test workers fetches them."""
    if given := os.environ.get("ODRADEK_KAFKA_JARS"):
        return Path(given)
    return _cached_jars(f"kafka-{kafka_version()}", TOOLS_DIR / "pom.xml")


def streams_jars() -> Path:
    """The directory with the jars of Kafka Streams (kafka-tools/streams), as `kafka_jars`."""
    return _cached_jars(f"kafka-streams-{kafka_version()}", TOOLS_DIR / "streams" / "pom.xml")


def _cached_jars(name: str, pom: Path) -> Path:
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ToolsMissingError(
            f"{' and '.join(missing)} not found: "
            "run `apt-get install -y openjdk-17-jdk-headless maven`, or `make setup` as root"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    content = b"".join(path.read_bytes() for path in (pom, pom.with_name("jars.sha256")))
    jars = cache / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"
    if jars.is_dir():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "kafka.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch_jars(jars, pom)
    return jars


def _fetch_jars(target: Path, pom: Path) -> None:
    """Maven copies into a directory beside the target, which appears only when it is complete."""
    partial = Path(tempfile.mkdtemp(prefix="kafka-partial-", dir=target.parent))
    try:
        command = ["mvn", "-q", "-B", "-f", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        command += [f"-Dkafka.version={kafka_version()}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise ToolsMissingError(
                f"Maven could not fetch Apache Kafka:\n{done.stdout}{done.stderr}"
            )
        _check_jars(partial, pom.with_name("jars.sha256"))
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_jars(directory: Path, hashes: Path) -> None:
    """All that are listed, as they are listed, and no other."""
    listed = {name: digest for digest, name in map(str.split, hashes.read_text().splitlines())}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }
    if wrong := sorted(name for name, _ in listed.items() ^ found.items()):
        raise ToolsMissingError(f"{wrong[0]} is not as {hashes} says")


def java_command(main_class: str, *args: str, jvm: Sequence[str] = JVM_FLAGS) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
    return ["java", *jvm, logging, "-cp", f"{kafka_jars()}/*", main_class, *args]


def kafka_tool(
    main_class: str,
    *args: str,
    stdin: str | bytes | None = None,
    timeout_s: float = 60.0,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Apache Kafka's tools to its end; its words are in the error when it fails."""
    done = subprocess.run(
        java_command(main_class, *args),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    # Tools print record values as they are: never fail on bytes that are not UTF-8.
    text = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )  # fmt: skip
    if check and text.returncode != 0:
        raise AssertionError(
            f"{main_class} {' '.join(args)}: exit code {text.returncode}\n"
            f"{text.stdout}{text.stderr}"
        )
    return text


# -- servers ---------------------------------------------------------------------------------------


class Server(ServerProcess):
    """A server with a directory of its own; a context manager that insists on a clean end.

    `bootstrap` is "127.0.0.1:PORT" while it runs. What it prints goes to `log_path`.
    """

    directory: Path
    settings: dict[str, str]

    @property
    def bootstrap(self) -> str:
        raise AssertionError("each engine knows where it listens")

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def start(self) -> None:
        raise AssertionError("each engine has its own command and its own sign of readiness")

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        died = self.process.poll() if self.process is not None else None
        code = self.stop()
        log = self.log()
        if self.directory.name.startswith(OWN_DIRECTORY):
            shutil.rmtree(self.directory, ignore_errors=True)
        if kind is not None:
            return  # the test's own failure is the news; conftest.py adds the log to the report
        if died is not None:
            raise AssertionError(f"{self.name} died during the test (exit code {died})\n{log}")
        if code != 0:
            raise AssertionError(f"{self.name} did not stop cleanly (exit code {code})\n{log}")


def _directory(given: Path | None) -> Path:
    directory = given or Path(tempfile.mkdtemp(prefix=OWN_DIRECTORY))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


class RunningBroker(BrokerProcess, Server):
    """Our broker on free ports."""

    def __init__(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = _directory(directory)
        settings = {"log.dirs": str(self.data_dir), **(overrides or {})}
        super().__init__(settings, self.directory / "server.out", env)


class RunningApacheKafka(Server):
    """Apache Kafka 4.3.1 in KRaft mode, broker and controller in one JVM."""

    bootstrap = ""
    name = "apache-kafka"
    cluster_id = "b2RyYWRlay10ZXN0cy0xMQ"

    def __init__(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = _directory(directory)
        super().__init__(self.directory / "server.out", env)
        self.bootstrap = f"127.0.0.1:{free_port()}"
        controller = f"127.0.0.1:{free_port()}"
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **(overrides or {}),
        }

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{n}={v}\n" for n, v in self.settings.items()))
        if not (self.data_dir / "meta.properties").exists():
            kafka_tool("kafka.tools.StorageTool", "format", "-t", self.cluster_id,
                       "-c", str(properties))  # fmt: skip
        flags = ("-Xmx512m", *JVM_FLAGS[1:])
        process = self.spawn(java_command("kafka.Kafka", str(properties), jvm=flags))
        give_up = time.monotonic() + deadline_s
        while not answers_api_versions(self.bootstrap):
            if process.poll() is not None or time.monotonic() > give_up:
                raise self.give_up()
            time.sleep(0.05)

    def stop(self) -> int:
        code = super().stop()
        return 0 if code == 128 + signal.SIGTERM else code  # what a JVM says after a clean SIGTERM


def free_port() -> int:
    """A port that was free a moment ago, for servers that cannot be given port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers_api_versions(address: str, timeout_s: float = 2.0) -> bool:
    """Whether the server answers a whole request (ApiVersions v0), not only a TCP connect."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and head[4:] == struct.pack(">i", 7)


def engine() -> type[Server]:
    """Which server the client suite runs against: ODRADEK_TEST_ENGINE=apache, or ours."""
    return RunningApacheKafka if on_apache() else RunningBroker


def on_apache() -> bool:
    return os.environ.get("ODRADEK_TEST_ENGINE") == "apache"


if __name__ == "__main__":  # .ci/setup: fetch the jars before the tests, whose time is limited
    kafka_jars()
