"""Servers as child processes: started, waited for, and ended by their own pid.

Used by `odradek demo` and by the test kit. A server's output goes to one file, which the error of
a failed start contains.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from odradek_operator.local.environment import without_settings

START_DEADLINE_S = 60.0  # ours needs well under one second; Apache Kafka 3 to 8
BROKER_MODULE = "odradek_broker.main"
STOP_DEADLINE_S = 20.0  # a clean shutdown flushes every log


class StartFailedError(Exception):
    """The server ended, or was not ready, before the deadline."""

    def __init__(self, name: str, exit_code: int | None, log: str) -> None:
        super().__init__(f"{name} did not become ready (exit code {exit_code})\n{log}")
        self.exit_code = exit_code
        self.log = log


class ChildProcess(Protocol):
    """A started process: the methods of subprocess.Popen that are used here."""

    @property
    def pid(self) -> int: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    @property
    def returncode(self) -> int | None:
        """As the last `poll` or `wait` found it."""
        ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired if it runs for longer than `timeout` seconds."""
        ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class ServerProcess:
    """One server process; `spawn` starts it, `stop` and `kill` end it."""

    name = "server"

    def __init__(self, log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.log_path = log_path
        self.env = dict(env or {})
        self.process: ChildProcess | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    def spawn(self, command: Sequence[str], *, stdout: int | None = None) -> ChildProcess:
        assert self.process is None, f"{self.name} is already running"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                env={**without_settings(), **self.env},
            )
        return self.process

    def stop(self) -> int:
        """SIGTERM, then SIGKILL past the deadline; the exit code (negative = the signal)."""
        process = self.process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self.process = None
        return code

    def kill(self) -> None:
        """kill -9: the process has no chance to do anything; the kernel's page cache survives."""
        assert self.process is not None, f"{self.name} is not running"
        self.process.kill()
        self.process.wait()
        self.process = None

    def give_up(self) -> StartFailedError:
        """Ends a server that did not become ready; returns the error to raise."""
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            self.kill()
        self.process = None
        return StartFailedError(self.name, code, self.log())

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def rss_bytes(self) -> int:
        """Resident memory."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


class BrokerProcess(ServerProcess):
    """Our broker: `python -m odradek_broker.main --override name=value …`.

    Ready when it prints one JSON line on stdout, for example
    {"event": "ready", "listeners": {"PLAINTEXT": "127.0.0.1:40123"}, "admin": "127.0.0.1:40124",
     "node_id": 1, "cluster_id": "…", "startup_ms": 412}
    """

    name = "odradek"

    def __init__(
        self, settings: Mapping[str, str], log_path: Path, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(log_path, env)
        self.settings = {
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "odradek.admin.listener": "127.0.0.1:0",
            **settings,
        }
        self.ready: dict[str, Any] = {}

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        flags = [f"--override={name}={value}" for name, value in self.settings.items()]
        process = self.spawn([sys.executable, "-m", BROKER_MODULE, *flags], stdout=subprocess.PIPE)
        self.ready = {}
        said = threading.Event()
        threading.Thread(target=self._follow_stdout, args=(process, said), daemon=True).start()
        said.wait(deadline_s)
        if not self.ready:
            raise self.give_up()
        if self.settings["listeners"].endswith(":0"):  # a restart comes back where clients look
            self.settings["listeners"] = f"PLAINTEXT://{self.bootstrap}"

    @property
    def bootstrap(self) -> str:
        """ "127.0.0.1:PORT" of the first listener."""
        return str(next(iter(self.ready["listeners"].values())))

    @property
    def admin(self) -> str:
        """ "127.0.0.1:PORT" of /healthz, /readyz and /metrics."""
        return str(self.ready["admin"])

    def _follow_stdout(self, process: ChildProcess, said: threading.Event) -> None:
        """Copies stdout to the log; notices the ready line, and the end of the output."""
        assert process.stdout is not None
        with process.stdout, open(self.log_path, "ab") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if not said.is_set() and line.startswith(b'{"event"'):
                    event = json.loads(line)
                    if event["event"] == "ready":
                        self.ready = event
                        said.set()
        process.wait()
        said.set()
