"""A real schema registry that speaks Confluent's REST API: Apicurio Registry, from Maven.

    with SchemaRegistry(directory) as registry:                     # keeps schemas in memory
        registry.url                    # "http://127.0.0.1:40123/apis/ccompat/v7"
    with SchemaRegistry(directory, kafka=broker.bootstrap): ...     # keeps them in a topic

Why this one: Confluent's own registry is not on Maven Central, and PyPI has no Karapace. 3.0.9 is
the newest version that runs on Java 17; it is downloaded once into the cache (109 MB, unpacked 125
MB), takes 8 s to start and 270 MB of memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_cli.processes import ServerProcess
from odradek_testkit.caching import cache_home
from odradek_testkit.engines import QUICK_JVM, ToolsMissingError
from odradek_testkit.ports import free_ports

VERSION = "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
# Newer versions of the plugin read the parent of the artifact's POM, which Maven does not have.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
DEADLINE_S = 240.0  # 8 s on an idle machine
POLL_S = 0.1


def installed() -> Path:
    """The unpacked registry; fetched by the first caller."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ToolsMissingError(
            f"{' and '.join(missing)} not found: run `make setup` as root, or `apt-get install -y "
            "openjdk-17-jdk-headless maven`"
        )
    cache = cache_home()
    place = cache / f"apicurio-registry-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "apicurio.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            _fetch(place)
    return place


def _fetch(place: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix="apicurio-partial-", dir=place.parent))
    try:
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        command = ["mvn", "-q", "-B", COPY, f"-Dartifact={artifact}",
                   f"-DoutputDirectory={partial}"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        archive = partial / f"apicurio-registry-app-{VERSION}-all.tar.gz"
        if done.returncode != 0 or not archive.exists():
            raise ToolsMissingError(f"Maven could not fetch {artifact}:\n{done.stdout[-2000:]}")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != SHA256:
            raise ToolsMissingError(f"{archive.name} has the hash {digest}, not {SHA256}")
        with tarfile.open(archive) as packed:
            packed.extractall(partial / "unpacked", filter="data")
        (partial / "unpacked").rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def runner_jar() -> Path:
    return installed() / f"apicurio-registry-app-{VERSION}-runner.jar"


class SchemaRegistry(ServerProcess):
    """One registry process on a port that it keeps over restarts."""

    name = "apicurio-registry"

    def __init__(
        self,
        directory: Path,
        *,
        kafka: str | None = None,
        topic: str = "kafkasql-journal",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory / "registry.log")
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        self._settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": str(self._port),
                          "quarkus.http.access-log.enabled": "false"}  # fmt: skip
        if kafka is not None:
            self._settings |= {
                "apicurio.storage.kind": "kafkasql",
                "apicurio.kafkasql.bootstrap.servers": kafka,
                "apicurio.kafkasql.topic": topic,
                "apicurio.kafkasql.snapshots.topic": f"{topic}-snapshots",
                "apicurio.events.kafka.topic": f"{topic}-events",
            }
        self._settings |= settings or {}

    def start(self) -> None:
        flags = [f"-D{name}={value}" for name, value in self._settings.items()]
        process = self.spawn(["java", *QUICK_JVM, *flags, "-jar", str(runner_jar())])
        give_up = time.monotonic() + DEADLINE_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > give_up:
                raise self.give_up()
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=60):
                return True
        except urllib.error.HTTPError as error:
            return error.code in (401, 403)  # it runs, and asks for a login
        except OSError:
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.kill()
