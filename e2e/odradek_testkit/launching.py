"""Processes that end with this one: started by a launcher (odradek_broker/launcher.py).

`launcher()` is the launcher of this process. Its first call takes as long as the import of the
broker, half a second; each broker after that is a fork of it. The launcher ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

PREFIX = "odradek-testing-"
ANSWER_BYTES_MAX = 1 << 16


class LauncherError(Exception):
    """The launcher ended or could not start a process."""


class Launcher:
    """The process that starts the brokers; safe for threads."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The broker reads settings from variables such as KAFKA_LOG_RETENTION_MS; those of the
        # test run are meant for the program under test.
        env = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        with theirs, open(self.directory / "launcher.out", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek_broker.launcher",
                 str(theirs.fileno()), str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the test run, which ends the brokers
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        return self.owner_pid == os.getpid() and self._process.poll() is None

    def start(
        self, what: Mapping[str, Any], log: Path, env: Mapping[str, str], *, pipe: bool
    ) -> LaunchedProcess:
        """`what` is {"broker": flags} or {"command": argv}; with `pipe` its stdout can be read."""
        request = {**what, "log": str(log), "env": dict(env)}
        if not pipe:
            return LaunchedProcess(self, self.ask(request)["pid"], None)
        readable, writable = os.pipe()
        stdout = os.fdopen(readable, "rb")
        try:
            pid = self.ask(request, writable)["pid"]
        except BaseException:
            stdout.close()
            raise
        finally:
            os.close(writable)
        return LaunchedProcess(self, pid, stdout)

    def ask(self, request: Mapping[str, Any], *fds: int) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], list(fds))
                data = self._control.recv(ANSWER_BYTES_MAX)
            except OSError as error:
                raise self._ended() from error
        if not data:
            raise self._ended()
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise LauncherError(answer["error"])
        return answer

    def _ended(self) -> LauncherError:
        log = self.directory / "launcher.out"
        said = log.read_text(errors="replace") if log.exists() else ""
        return LauncherError(f"the launcher of brokers has ended\n{said}")

    def close(self) -> None:
        """Ends the launcher and everything that it started."""
        self._control.close()
        if self.owner_pid == os.getpid():
            self._process.wait()
            shutil.rmtree(self.directory, ignore_errors=True)  # if the launcher was killed


class LaunchedProcess:
    """A `ChildProcess`: a child of the launcher, watched through a pidfd."""

    def __init__(self, launcher: Launcher, pid: int, stdout: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._launcher = launcher
        self._lock = threading.Lock()  # the thread that reads stdout waits for the end, too
        # The launcher reaps only when it is asked to, so the number cannot be another process's.
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and self._has_ended(0):
                self._reap()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                if not self._has_ended(timeout):
                    assert timeout is not None
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
                self._reap()
            assert self.returncode is not None
            return self.returncode

    def send_signal(self, sig: int) -> None:
        with self._lock:
            if self.returncode is None:
                signal.pidfd_send_signal(self._pidfd, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def _reap(self) -> None:
        try:
            self.returncode = self._launcher.ask({"reap": self.pid})["code"]
        except LauncherError:  # it was killed, and its children with it
            self.returncode = -signal.SIGKILL
        os.close(self._pidfd)


_launcher: Launcher | None = None
_launcher_lock = threading.Lock()


def launcher() -> Launcher:
    """The launcher of this process, started by the first call."""
    global _launcher
    with _launcher_lock:
        if _launcher is None or not _launcher.usable:
            if _launcher is not None:
                _launcher.close()
            _launcher = Launcher()
        return _launcher


def close_launcher() -> None:
    """Ends the launcher if there is one; a later `launcher()` starts a new one."""
    global _launcher
    with _launcher_lock:
        if _launcher is not None:
            _launcher.close()
            _launcher = None


atexit.register(close_launcher)
