"""The image instead of a child process, for those who run everything in containers.

    with KafkaContainer() as kafka:                    # docker run …
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

One broker, reached from this machine only. It is for tests that must use the image itself; `Kafka`
starts ten times faster, needs no container engine and has faults, time and several brokers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
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
        flags: Sequence[str] = (),
    ) -> None:
        """`config` has Kafka's broker settings; `program` may be podman or nerdctl.

        `flags` are more flags of `docker run`, such as --network=NAME or --memory=512m.
        """
        self._image = image
        self._config = dict(config or {})
        self._program = program
        self._flags = list(flags)
        (self._port,) = free_ports(1)
        self._id: str | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def id(self) -> str:
        """The container's."""
        if self._id is None:
            raise ContainerError("the container does not run")
        return self._id

    def command(self) -> list[str]:
        """The `run` command. The port is the same inside and outside: clients connect to what the
        broker advertises."""
        port = self._port
        settings = {
            "listeners": f"PLAINTEXT://0.0.0.0:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **self._config,
        }
        variables = [f"--env={_variable(name)}={value}" for name, value in settings.items()]
        # Without --rm: the log of a broker that could not start is still there.
        return [self._program, "run", "--detach", f"--publish=127.0.0.1:{port}:{port}",
                *variables, *self._flags, self._image]  # fmt: skip

    @property
    def pid(self) -> int:
        """The broker's process on the machine of the container engine; 0 after its end."""
        return int(self._run([self._program, "inspect", "--format={{.State.Pid}}", self.id]))

    def start(self) -> Self:
        self._id = self._run(self.command()).strip()
        try:
            wait_until(self._answers, "the broker answers", START_DEADLINE_S)
        except AssertionError as error:
            log = self.log()
            self.stop()
            raise ContainerError(f"{error}\n{log}") from None
        return self

    def _answers(self) -> bool:
        if answers_api_versions(self.bootstrap):
            return True
        if not self.pid:
            log = self.log()
            self.stop()
            raise ContainerError(f"the broker in the container has ended\n{log}")
        return False

    def log(self) -> str:
        """The output of the broker, stdout and stderr."""
        return self._run([self._program, "logs", self.id], stderr=subprocess.STDOUT)

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
    def _run(command: list[str], stderr: int = subprocess.PIPE) -> str:
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
            )
        except FileNotFoundError:
            raise ContainerError(f"{command[0]} is not installed") from None
        if done.returncode != 0:
            said = (done.stderr or "").strip() or done.stdout
            raise ContainerError(f"{' '.join(command)}: {said}")
        return done.stdout


def _variable(name: str) -> str:
    """log.retention.ms → KAFKA_LOG_RETENTION_MS, as the broker reads it back."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
