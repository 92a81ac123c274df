"""Broker processes on this machine: started, observed, stopped by pid, and found again.

Each broker has a directory:

    broker-0/server.properties      its settings
    broker-0/process.json           pid, when that process was born, and what it was started with
    broker-0/server.out             its output; the last line says why it ended
    broker-0/data-0 …               its log directories

A process is the one that was started if both pid and start time (field 22 of /proc/PID/stat) are
equal. So a runtime that was restarted finds its brokers running and keeps them, and never signals
an unrelated process that got an old pid.

A broker that ends by itself is started again with a backoff: 1 s, 2 s, 4 s … 60 s, from 1 s again
after it ran for a minute. It is CRASHED during the backoff and STOPPED after it, and then the plan
starts it; changed settings are tried at once.

`observe` changes nothing on the machine; `supervise` is called once per pass before it, notices
processes that ended, completes restarts, and kills what does not stop in time.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from odradek_operator.kafka.apache import (
    CLUSTER_ID,
    FORMAT,
    METRICS,
    METRICS_AGENT,
    METRICS_RULES,
)
from odradek_operator.kafka.observed import Ended, ObservedBroker, Phase
from odradek_operator.kafka.routes import internal_address
from odradek_operator.local.environment import without_settings
from odradek_operator.local.ledger import LedgerError, write_json

READY_TIMEOUT_S = 1.0  # of one request to /readyz
REASONS_BYTES_MAX = 4096  # of the response
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0  # before a broker that ended by itself is started again
STEADY_S = 60.0  # after this uptime the backoff starts from the beginning
STOP_DEADLINE_S = 60.0  # after SIGTERM: leaders are handed over, logs flushed
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
JARS = "ODRADEK_KAFKA_JARS"  # environment: the directory with Apache Kafka's jars
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
OUTPUT_BYTES_MAX = 16 << 20  # a larger server.out is rotated at the next start


class ProcessFile(msgspec.Struct, rename="camel"):
    pid: int
    born: int  # its start time in clock ticks since boot
    started_at: float
    settings: dict[str, str]


class Readiness(msgspec.Struct):
    reasons: dict[str, str] = {}


class LocalBroker:
    """One node: its process, and the observations of it."""

    def __init__(
        self,
        broker: int,
        rack: str,
        directory: Path,
        address: str,
        admin: str,
        answers_over_tls: Callable[[str], bool] | None = None,
    ) -> None:
        self.id = broker
        self.name = f"broker {broker}"
        self._answers_over_tls = answers_over_tls
        self.rack = rack
        self.directory = directory
        self.address = address
        self.admin = admin
        self._child: subprocess.Popen[bytes] | None = None
        self._running: ProcessFile | None = self._find()
        self._ready = False
        self._since = self._running.started_at if self._running else time.time()
        self._stopping_since: float | None = None
        self._restart_with: Mapping[str, str] | None = None
        self._ends = 0  # how often it ended by itself, in quick succession
        self._ended: Ended | None = None  # the last of these, until it is ready again
        self._next_start = self._backoff = 0.0

    # -- observe -----------------------------------------------------------------------------------

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of its last start; empty if it was never started."""
        found = self._running or self._read()
        return found.settings if found else {}

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    def observe(self, now: float) -> ObservedBroker:
        """Asks the process whether it is ready. Remembers since when, and changes nothing else."""
        detail = ""
        if self._running:
            ready, detail = (False, "") if self._stopping_since is not None else self._answers()
            if ready != self._ready:
                self._ready, self._since = ready, now
            if ready:
                self._ended = None
        phase = self._phase(now)
        ended = self._last_end(phase, detail)
        if phase is Phase.CRASHED and ended is not None:
            detail = ended.words
        return ObservedBroker(
            self.id,
            self.rack,
            phase,
            self._since,
            self.settings,
            detail,
            self.address,
            ended=ended,
        )

    def _last_end(self, phase: Phase, detail: str) -> Ended | None:
        """How it ended and what happens next; None if it has been ready since."""
        if self._ended is None:
            return None
        then = "started again" + (f": {detail}" if detail else "")
        if phase is Phase.CRASHED:
            when = time.strftime("%H:%M:%S UTC", time.gmtime(self._next_start))
            then = f"next start after {self._backoff:.0f} s, at {when}"
        return Ended(self._ended.exit_code, f"{self._ended.words}; {then}")

    def _answers(self) -> tuple[bool, str]:
        if is_apache(self.settings):
            secured = internal_address(self.settings)
            if secured and self._answers_over_tls is not None:
                return self._answers_over_tls(secured), ""
            return answers_api_versions(self.address), ""
        return readiness(self.admin)

    def _phase(self, now: float) -> Phase:
        if self._running:
            return Phase.READY if self._ready else Phase.STARTING
        if self._ended is not None and now < self._next_start:
            return Phase.CRASHED
        return Phase.STOPPED

    def last_line(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            with open(self.directory / "server.out", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").strip().splitlines()
            return lines[-1].strip()
        return ""

    # -- act ---------------------------------------------------------------------------------------

    def supervise(self, now: float) -> None:
        """Records an end, starts the process of a pending restart, kills one that does not stop."""
        if self._running and not self._alive():
            self._record_end(now)
        if self._running is None:
            return
        if self._stopping_since is not None and now - self._stopping_since > STOP_DEADLINE_S:
            self.kill()
        if now - self._running.started_at > STEADY_S:
            self._ends = 0

    def start(self, settings: Mapping[str, str]) -> None:
        assert self._running is None, f"{self.name} is running already"
        properties = {n: v for n, v in settings.items() if not n.startswith("@")}
        path = self.directory / "server.properties"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{n}={_escaped(v)}\n" for n, v in properties.items()))
            self._rotate_output()
            self._child = spawn(self._command(settings, path), self.directory / "server.out")
        except OSError as error:
            raise LedgerError(f"{self.name} cannot be started: {error}") from error
        now = time.time()
        born = _start_ticks(self._child.pid) or 0
        self._running = ProcessFile(self._child.pid, born, now, dict(settings))
        write_json(self.directory / "process.json", self._running)
        self._ready, self._since, self._stopping_since = False, now, None

    def _command(self, settings: Mapping[str, str], properties: Path) -> list[str]:
        return command(settings, properties)

    def restart(self, settings: Mapping[str, str]) -> None:
        """SIGTERM now; `supervise` starts it again when it has ended."""
        self._ends = 0
        if self._running is None:
            self.start(settings)
            return
        self._restart_with = dict(settings)
        self.stop()

    def stop(self) -> None:
        """SIGTERM: it hands over its leaders and ends."""
        if self._running and self._stopping_since is None:
            self._stopping_since = time.time()
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def wait(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Waits until it has ended; SIGKILL after the deadline."""
        give_up = time.monotonic() + deadline_s
        while self._running and self._alive():
            if time.monotonic() > give_up:
                self.kill()
            time.sleep(0.02)
        self._running, self._child, self._ready = None, None, False

    def remove(self, *, with_data: bool) -> None:
        for name in ("server.properties", "process.json", "server.out"):
            (self.directory / name).unlink(missing_ok=True)
        if with_data:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- processes ---------------------------------------------------------------------------------

    def _record_end(self, now: float) -> None:
        assert self._running is not None
        if now - self._running.started_at > STEADY_S:
            self._ends = 0
        wanted, self._restart_with = self._restart_with, None
        asked = self._stopping_since is not None
        # None: an earlier runtime started it, and may have stopped it.
        code = self._child.poll() if self._child is not None else None
        self._running, self._child, self._ready = None, None, False
        self._stopping_since, self._since = None, now
        self._ended = None
        if not asked and code is not None:
            self._backoff = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(self._ends, 10))
            self._next_start = now + self._backoff
            self._ends += 1
            self._ended = Ended(code, _how(code, self.last_line()))
        if wanted is not None:
            self.start(wanted)

    def _alive(self) -> bool:
        assert self._running is not None
        if self._child is not None:
            return self._child.poll() is None
        return _start_ticks(self._running.pid) == self._running.born

    def _signal(self, number: signal.Signals) -> None:
        if self._running and self._alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._running.pid, number)

    def _find(self) -> ProcessFile | None:
        """The process of an earlier runtime, if it is still running."""
        found = self._read()
        return found if found and _start_ticks(found.pid) == found.born else None

    def _read(self) -> ProcessFile | None:
        try:
            data = (self.directory / "process.json").read_bytes()
            return msgspec.json.decode(data, type=ProcessFile)
        except (OSError, msgspec.DecodeError):
            return None

    def _rotate_output(self) -> None:
        output = self.directory / "server.out"
        if output.exists() and output.stat().st_size > OUTPUT_BYTES_MAX:
            output.replace(output.with_suffix(".out.1"))


def spawn(words: Sequence[str], output_path: Path) -> subprocess.Popen[bytes]:
    """A process that goes on when this one ends."""
    with open(output_path, "ab") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the runtime; it stops its brokers
            env=without_settings(),
        )


def is_apache(settings: Mapping[str, str]) -> bool:
    return "process.roles" in settings


def command(settings: Mapping[str, str], properties: Path) -> list[str]:
    """The command line: our broker as a module, or Apache Kafka as a JVM on a formatted disk."""
    if not is_apache(settings):
        return [sys.executable, "-m", "odradek_broker.main", "--config", str(properties)]
    jars = Path(os.environ[JARS])
    java = ["java", *JVM_FLAGS, "-cp", f"{jars}/*"]
    storage = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    storage += ["-t", settings[CLUSTER_ID], "-c", str(properties), *settings[FORMAT].split()]
    flags = [*_metrics_agent(settings, jars), *_allowed_urls(settings)]
    server = [*java, *flags, "kafka.Kafka", str(properties)]
    # One process for both, so that there is one pid.
    return ["sh", "-c", f"{shlex.join(storage)} && exec {shlex.join(server)}"]


def _metrics_agent(settings: Mapping[str, str], jars: Path) -> list[str]:
    """/metrics in the same JVM, if the agent is among the jars."""
    found = sorted(jars.glob(METRICS_AGENT))
    if not found or not settings.get(METRICS):
        return []
    return [f"-javaagent:{found[-1]}={settings[METRICS]}:{METRICS_RULES}"]


def _allowed_urls(settings: Mapping[str, str]) -> list[str]:
    """Kafka asks only those identity providers that a property of its JVM lists."""
    urls = sorted({url for name, url in settings.items() if name.endswith(JWKS_URL)})
    return [f"-D{ALLOWED_URLS}={','.join(urls)}"] if urls else []


def answers_api_versions(address: str) -> bool:
    """Whether a broker answers a whole request (ApiVersions v0), not only a TCP connect."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((host, int(port)), READY_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(8, socket.MSG_WAITALL)) == 8
    except OSError:
        return False


def is_ready(admin: str) -> bool:
    return readiness(admin)[0]


def readiness(admin: str, path: str = "/readyz") -> tuple[bool, str]:
    """Whether the server answers this path with 200; and if not, why, where it says so."""
    host, _, port = admin.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status == 200, _reasons(answer.read(REASONS_BYTES_MAX))
    except (OSError, http.client.HTTPException):
        return False, ""
    finally:
        connection.close()


def _reasons(body: bytes) -> str:
    """The reasons in {"ready": false, "reasons": {"storage": "…"}}."""
    try:
        reasons = msgspec.json.decode(body, type=Readiness).reasons
    except msgspec.DecodeError:
        return ""
    return "; ".join(reasons.values())


def _how(code: int, last_line: str) -> str:
    if code < 0:  # a killed process prints nothing: the last line is older
        return f"it was ended by {_signal_name(-code)}"
    return f"it ended with exit code {code}" + (f": {last_line}" if last_line else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _start_ticks(pid: int) -> int | None:
    """Start time of the process in clock ticks since boot; None if it is gone or a zombie.

    Not psutil's create_time: that is a wall time, which changes when the clock is set, and the
    process file outlives this process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _escaped(value: str) -> str:
    """Escaped for a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
