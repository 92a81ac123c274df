"""Apache Kafka as a process on free ports, from its Maven artifacts."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

from odradek_cli.processes import START_DEADLINE_S
from odradek_testkit.engines.java_tools import (
    JVM_FLAGS,
    SERVER,
    archive_flags,
    java_command,
    kafka_tool,
)
from odradek_testkit.engines.server import Server, answers_api_versions, server_directory
from odradek_testkit.ports import free_port

QUICK_JVM = ("-Xmx512m", *JVM_FLAGS[1:])  # starts fast, and then runs slowly
POLL_S = 0.01


class RunningApacheKafka(Server):
    """Apache Kafka 4.3.1 in KRaft mode, broker and controller in one JVM."""

    name = "apache-kafka"
    cluster_id = "b2RyYWRlay10ZXN0cy0xMQ"
    jvm: tuple[str, ...] = QUICK_JVM

    def __init__(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = server_directory(directory)
        super().__init__(self.directory / "server.out", env)
        controller = f"127.0.0.1:{free_port()}"
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **(overrides or {}),
        }

    @property
    def bootstrap(self) -> str:
        """The first of its listeners, which is the one for clients."""
        first, _, _ = self.settings["listeners"].partition(",")
        return first.rpartition("//")[2]

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def format(self) -> None:
        """Writes the settings and formats the log directory; takes a JVM's start the first time."""
        self.properties.write_text("".join(f"{n}={v}\n" for n, v in self.settings.items()))
        if not (self.data_dir / "meta.properties").exists():
            kafka_tool("kafka.tools.StorageTool", "format", "-t", self.cluster_id,
                       "-c", str(self.properties))  # fmt: skip

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        self.format()
        quick = self.jvm == QUICK_JVM  # not with the flags of production, which are measured
        flags = (*archive_flags(SERVER), *self.jvm) if quick else self.jvm
        process = self.spawn(java_command("kafka.Kafka", str(self.properties), jvm=flags))
        give_up = time.monotonic() + deadline_s
        tls = self.settings["listeners"].startswith(("SSL:", "SASL_SSL:"))
        while not answers_api_versions(self.bootstrap, tls=tls):
            if process.poll() is not None or time.monotonic() > give_up:
                raise self.give_up()
            time.sleep(POLL_S)

    def stop(self) -> int:
        code = super().stop()
        return 0 if code == 128 + signal.SIGTERM else code  # a JVM's code after a clean SIGTERM
