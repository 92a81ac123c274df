"""The image instead of a child process, for those who run everything in containers.

    with KafkaContainer() as kafka:                    # docker run …
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

One broker, reached from this machine only. It is for tests that must use the image itself; `Kafka`
starts ten times faster, needs no container engine and has faults, time and several brokers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from odradek_testkit.engines import answers_api_versions
from odradek_testkit.ports import free_ports
from odradek_testkit.waiting import wait_until

IMAGE = "odradek/broker"
START_DEADLINE_S = 60.0


class ContainerError(Exception):
    """The container engine refused a command; the text has the command and what it said."""


class KafkaContainer:
    """One broker in a container that is removed at the end."""

    def __init__(
        self,
        image: str = IMAGE,
        *,
        config: Mapping[str, str] | None = None,
        program: str = "docker",
    ) -> None:
        """`config` has Kafka's broker settings; `program` may be podman or nerdctl."""
        self._image = image
        self._config = dict(config or {})
        self._program = program
        (self._port,) = free_ports(1)
        self._id: str | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        """The `run` command. The port is the same inside and outside: clients connect to what the
        broker advertises."""
        port = self._port
        settings = {
            "listeners": f"PLAINTEXT://0.0.0.0:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **self._config,
        }
        flags = [f"--env={_variable(name)}={value}" for name, value in settings.items()]
        return [self._program, "run", "--detach", "--rm", f"--publish=127.0.0.1:{port}:{port}",
                *flags, self._image]  # fmt: skip

    def start(self) -> Self:
        self._id = self._run(self.command()).strip()
        try:
            wait_until(
                lambda: answers_api_versions(self.bootstrap), "the broker answers", START_DEADLINE_S
            )
        except AssertionError as error:
            log = self.log()
            self.stop()
            raise ContainerError(f"{error}\n{log}") from None
        return self

    def log(self) -> str:
        return self._run([self._program, "logs", self._id or ""])

    def stop(self) -> None:
        if self._id is not None:
            self._run([self._program, "rm", "--force", self._id])
            self._id = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @staticmethod
    def _run(command: list[str]) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise ContainerError(f"{command[0]} is not installed") from None
        if done.returncode != 0:
            raise ContainerError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout}")
        return done.stdout


def _variable(name: str) -> str:
    """log.retention.ms → KAFKA_LOG_RETENTION_MS, as the broker reads it back."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
