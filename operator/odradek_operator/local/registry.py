"""A schema registry next to a cluster of this machine: Apicurio Registry, as a process.

The annotation `odradek.dev/local-schema-registry: "8081"` of a KafkaCluster asks for one on that
port. It starts when the cluster is ready and keeps its schemas in topics of the cluster; in its
directory there is only

    default.main/schema-registry/process.json, server.properties, server.out

Like a broker it goes on when the runtime is killed, is found by the next one, and is started again
when it ends by itself.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odradek_api.base import LOCAL_REGISTRY_ANNOTATION, Problem, Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_operator.kafka.observed import Phase
from odradek_operator.local.processes import JVM_FLAGS, LocalBroker, readiness

JAR = "ODRADEK_SCHEMA_REGISTRY_JAR"  # environment: apicurio-registry-app-…-runner.jar
HOST = "127.0.0.1"
PORT_MAX = 65_535
API = "/apis/ccompat/v7"  # Confluent's REST API
READY_PATH = "/health/ready"  # not before it has read its topics
PORT = "quarkus.http.port"
NO_ID = -1  # it is no node of the cluster


class RegistryReport(msgspec.Struct, rename="camel"):
    url: str
    ready: bool = False
    message: str = ""  # why it is not ready
    pid: int | None = None

    @property
    def line(self) -> str:
        pid = f" (pid {self.pid})" if self.pid else ""
        return f"schema registry {self.url}{pid}: {'ready' if self.ready else self.message}"


class RegistryProcess(LocalBroker):
    """The process, supervised as a broker's; its settings are system properties of the JVM."""

    def __init__(self, directory: Path) -> None:
        super().__init__(NO_ID, "", directory, "", "")
        self.name = "the schema registry"

    def _answers(self) -> tuple[bool, str]:
        return readiness(f"{HOST}:{self.settings[PORT]}", READY_PATH)[0], ""

    def _command(self, settings: Mapping[str, str], properties: Path) -> list[str]:  # noqa: ARG002
        flags = [f"-D{name}={value}" for name, value in settings.items()]
        return ["java", *JVM_FLAGS, *flags, "-jar", os.environ[JAR]]


class LocalRegistry:
    """The registry of one cluster: `assess` decides and changes nothing, `act` carries it out."""

    def __init__(self, directory: Path) -> None:
        self._process = RegistryProcess(directory / "schema-registry")
        self._wanted: dict[str, str] | None = None  # settings to start it with; None: do not
        self._stops = False
        self.lines: list[str] = []  # the pending actions, in sentences

    def supervise(self) -> None:
        self._process.supervise(time.time())

    def assess(
        self, resource: Resource[KafkaClusterSpec], status: KafkaClusterStatus
    ) -> RegistryReport | None:
        port = resource.annotations.get(LOCAL_REGISTRY_ANNOTATION)
        self._wanted, self._stops, self.lines = None, False, []
        observed = self._process.observe(time.time())
        if port is None:
            self._stops = self._process.pid is not None
            self.lines = ["stop the schema registry: the annotation is gone"] * self._stops
            return None
        report = RegistryReport(f"http://{HOST}:{port}{API}", pid=self._process.pid)
        moved = self._process.pid is not None and self._process.settings[PORT] != port
        cluster_ready = any(c.type == "Ready" and c.status == "True" for c in status.conditions)
        if moved or (observed.phase is Phase.STOPPED and cluster_ready):
            self._wanted = registry_settings(port, status.bootstrap_servers)
            self.lines = [f"start the schema registry on port {port}"]
        elif observed.phase is Phase.READY:
            report.ready = True
        elif observed.phase is Phase.STOPPED:
            report.message = "waits until the cluster is ready"
        else:
            report.message = observed.detail or "is starting"
        return report

    def act(self) -> None:
        if self._stops:
            self._process.stop()
        elif self._wanted is not None and self._process.pid is not None:
            self._process.restart(self._wanted)
        elif self._wanted is not None:
            self._process.start(self._wanted)

    def stop(self) -> None:
        self._process.stop()
        self._process.wait()


def registry_settings(port: str, bootstrap: str) -> dict[str, str]:
    return {
        "quarkus.http.host": HOST,
        PORT: port,
        "quarkus.http.access-log.enabled": "false",
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": bootstrap,
    }


def registry_problems(resource: Resource[KafkaClusterSpec]) -> list[Problem]:
    """Why the registry that a manifest asks for cannot run here."""
    port = resource.annotations.get(LOCAL_REGISTRY_ANNOTATION)
    if port is None:
        return []
    found = []
    if not (port.isdecimal() and 0 < int(port) <= PORT_MAX):
        found.append(f"must be a port from 1 to {PORT_MAX}, not {port}")
    listener = resource.spec.client_listener
    if listener.tls or listener.authentication.type != "none":
        found.append(
            f"the registry keeps its schemas in topics and cannot log in: listener {listener.name} "
            "needs tls: false and no authentication"
        )
    if not (shutil.which("java") and Path(os.environ.get(JAR, "")).is_file()):
        found.append(
            f"needs java, and apicurio-registry-app-…-runner.jar in {JAR}: docs/how-to/"
            "schema-registry.md says how to get it"
        )
    field = f"metadata.annotations[{LOCAL_REGISTRY_ANNOTATION}]"
    subject = f"KafkaCluster {resource.key}"
    return [Problem(resource.source, subject, field, message) for message in found]
