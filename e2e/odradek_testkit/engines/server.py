"""The common part of every engine's server: a directory of its own and a clean end.

A server is a context manager. It waits for readiness with a deadline (never a fixed sleep) and ends
only the process that it started.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_cli.processes import ChildProcess, ServerProcess

OWN_DIRECTORY = "odradek-test-"  # removed at the end; a directory that was given is kept


class Server(ServerProcess, ABC):
    """A server with a directory of its own; leaving the context requires a clean shutdown.

    `bootstrap` is "127.0.0.1:PORT" while it runs. Its output goes to `log_path`.
    """

    directory: Path
    settings: dict[str, str]
    client_config: Path | None = None  # of clients, if they need a login: see `connecting`
    wrapper: Sequence[str] = ()  # a command that runs the server's, such as prlimit

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Where the engine listens."""

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def spawn(self, command: Sequence[str], *, stdout: int | None = None) -> ChildProcess:
        return super().spawn([*self.wrapper, *command], stdout=stdout)

    @abstractmethod
    def start(self) -> None:
        """Runs the engine's command and waits for its own sign of readiness."""

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
            return  # do not hide the test's own failure; conftest.py adds the log to the report
        if died is not None:
            raise AssertionError(f"{self.name} died during the test (exit code {died})\n{log}")
        if code != 0:
            raise AssertionError(f"{self.name} did not stop cleanly (exit code {code})\n{log}")


def server_directory(given: Path | None) -> Path:
    """The given directory, or a new one that is removed when the server ends."""
    directory = given or Path(tempfile.mkdtemp(prefix=OWN_DIRECTORY))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def answers_api_versions(address: str, timeout_s: float = 2.0, *, tls: bool = False) -> bool:
    """Whether the server answers a whole request (ApiVersions v0), not only a TCP connect."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 7, -1)
    head = b""
    try:
        with (
            socket.create_connection((host, int(port)), timeout=timeout_s) as connected,
            _without_verification(connected) if tls else connected as connection,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            while len(head) < 8 and (part := connection.recv(8 - len(head))):
                head += part
    except OSError:
        return False
    return len(head) == 8 and head[4:] == struct.pack(">i", 7)


def _without_verification(connected: socket.socket) -> ssl.SSLSocket:
    """It asks whether a server of this test run is ready, and sends no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connected)
