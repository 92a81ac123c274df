"""Broker processes on this machine: started, watched, ended by their own pid, found again.

Each broker has a directory:

    broker-0/server.properties      its settings
    broker-0/process.json           pid, when that process was born, and what it was started with
    broker-0/server.out             what it printed; its last line says why it ended
    broker-0/data-0 …               its log directories

A process is the one that was started if both pid and birth (field 22 of /proc/PID/stat) are the
same. So a runtime that died and comes back finds its brokers at work and leaves them there, and
never signals a stranger that got an old pid.

A broker that ends by itself is started again after a pause: 1 s, 2 s, 4 s … 60 s, from 1 s again
after it ran for a minute. It is CRASHED during the pause and STOPPED after it, and then the plan
starts it; new settings are tried at once.
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
from collections.abc import Mapping
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
from odradek_operator.local.ledger import LedgerError, write_json

READY_TIMEOUT_S = 1.0  # of one question to /readyz
REASONS_BYTES_MAX = 4096  # of its answer
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0  # before a broker that ended by itself is started again
STEADY_S = 60.0  # a broker that ran for so long has nothing to do with the ends before
STOP_DEADLINE_S = 60.0  # after SIGTERM: leaderships are handed over, logs flushed
JARS = "ODRADEK_KAFKA_JARS"  # environment: the directory with Apache Kafka's jars
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
OUTPUT_BYTES_MAX = 16 << 20  # server.out is put aside when it is larger, at the next start


class ProcessFile(msgspec.Struct, rename="camel"):
    pid: int
    born: int  # clock ticks since boot
    started_at: float
    settings: dict[str, str]


class Readiness(msgspec.Struct):
    reasons: dict[str, str] = {}


class LocalBroker:
    """One broker: what is wanted of its process, and what is seen of it."""

    def __init__(self, broker: int, rack: str, directory: Path, address: str, admin: str) -> None:
        self.id = broker
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
        self._ends = 0  # by itself, one soon after the other
        self._ended: Ended | None = None  # the last of them, until it is ready again
        self._next_start = self._pause = 0.0

    # -- what is seen ------------------------------------------------------------------------------

    @property
    def settings(self) -> Mapping[str, str]:
        """What it was last started with; empty if never."""
        found = self._running or self._read()
        return found.settings if found else {}

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    def look(self, now: float) -> ObservedBroker:
        """Notices ends and readiness, and carries restarts on; called in every pass."""
        if self._running and not self._alive():
            self._note_end(now)
        detail = ""
        if self._running:
            self._hurry(now)
            ready, detail = (False, "") if self._stopping_since is not None else self._answers()
            if ready != self._ready:
                self._ready, self._since = ready, now
            if ready:
                self._ended = None
            if now - self._running.started_at > STEADY_S:
                self._ends = 0
        phase = self._phase(now)
        ended = self._what_became_of_it(phase, detail)
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

    def _what_became_of_it(self, phase: Phase, detail: str) -> Ended | None:
        """How it ended, and what follows; None if it is ready again."""
        if self._ended is None:
            return None
        then = "started again" + (f": {detail}" if detail else "")
        if phase is Phase.CRASHED:
            when = time.strftime("%H:%M:%S UTC", time.gmtime(self._next_start))
            then = f"next start after {self._pause:.0f} s, at {when}"
        return Ended(self._ended.exit_code, f"{self._ended.words}; {then}")

    def _answers(self) -> tuple[bool, str]:
        if is_apache(self.settings):
            return answers_api_versions(self.address), ""
        return readiness(self.admin)

    def _phase(self, now: float) -> Phase:
        if self._running:
            return Phase.READY if self._ready else Phase.STARTING
        if self._ended is not None and now < self._next_start:
            return Phase.CRASHED
        return Phase.STOPPED

    def last_words(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            with open(self.directory / "server.out", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").strip().splitlines()
            return lines[-1].strip()
        return ""

    # -- what is done ------------------------------------------------------------------------------

    def start(self, settings: Mapping[str, str]) -> None:
        assert self._running is None, f"broker {self.id} runs already"
        properties = {n: v for n, v in settings.items() if not n.startswith("@")}
        path = self.directory / "server.properties"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{n}={_escaped(v)}\n" for n, v in properties.items()))
            self._put_output_aside()
            with open(self.directory / "server.out", "ab") as output:
                self._child = subprocess.Popen(
                    command(settings, path),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for the runtime; it stops its brokers
                )
        except OSError as error:
            raise LedgerError(f"broker {self.id} cannot be started: {error}") from error
        now = time.time()
        born = _born(self._child.pid) or 0
        self._running = ProcessFile(self._child.pid, born, now, dict(settings))
        write_json(self.directory / "process.json", self._running)
        self._ready, self._since, self._stopping_since = False, now, None

    def restart(self, settings: Mapping[str, str]) -> None:
        """SIGTERM now; the start follows when it has ended (in `look`)."""
        self._ends = 0
        if self._running is None:
            self.start(settings)
            return
        self._restart_with = dict(settings)
        self.stop()

    def stop(self) -> None:
        """SIGTERM; it hands its leaderships over and ends when it is ready to."""
        if self._running and self._stopping_since is None:
            self._stopping_since = time.time()
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def wait(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Until it has ended; SIGKILL past the deadline."""
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

    def _note_end(self, now: float) -> None:
        assert self._running is not None
        if now - self._running.started_at > STEADY_S:
            self._ends = 0
        wanted, self._restart_with = self._restart_with, None
        asked = self._stopping_since is not None
        # None: an earlier runtime started it, and may have asked it to end.
        code = self._child.poll() if self._child is not None else None
        self._running, self._child, self._ready = None, None, False
        self._stopping_since, self._since = None, now
        self._ended = None
        if not asked and code is not None:
            self._pause = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(self._ends, 10))
            self._next_start = now + self._pause
            self._ends += 1
            self._ended = Ended(code, _how(code, self.last_words()))
        if wanted is not None:
            self.start(wanted)

    def _hurry(self, now: float) -> None:
        if self._stopping_since is not None and now - self._stopping_since > STOP_DEADLINE_S:
            self.kill()

    def _alive(self) -> bool:
        assert self._running is not None
        if self._child is not None:
            return self._child.poll() is None
        return _born(self._running.pid) == self._running.born

    def _signal(self, number: signal.Signals) -> None:
        if self._running and self._alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._running.pid, number)

    def _find(self) -> ProcessFile | None:
        """The process of an earlier runtime, if it is still at work."""
        found = self._read()
        return found if found and _born(found.pid) == found.born else None

    def _read(self) -> ProcessFile | None:
        try:
            data = (self.directory / "process.json").read_bytes()
            return msgspec.json.decode(data, type=ProcessFile)
        except (OSError, msgspec.DecodeError):
            return None

    def _put_output_aside(self) -> None:
        output = self.directory / "server.out"
        if output.exists() and output.stat().st_size > OUTPUT_BYTES_MAX:
            output.replace(output.with_suffix(".out.1"))


def is_apache(settings: Mapping[str, str]) -> bool:
    return "process.roles" in settings


def command(settings: Mapping[str, str], properties: Path) -> list[str]:
    """How a broker is started: ours as a module, Apache Kafka as a JVM on a formatted disk."""
    if not is_apache(settings):
        return [sys.executable, "-m", "odradek_broker.main", "--config", str(properties)]
    jars = Path(os.environ[JARS])
    java = ["java", *JVM_FLAGS, "-cp", f"{jars}/*"]
    storage = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    storage += ["-t", settings[CLUSTER_ID], "-c", str(properties), *settings[FORMAT].split()]
    server = [*java, *_metrics_agent(settings, jars), "kafka.Kafka", str(properties)]
    # One process for both, so that there is one pid to watch.
    return ["sh", "-c", f"{shlex.join(storage)} && exec {shlex.join(server)}"]


def _metrics_agent(settings: Mapping[str, str], jars: Path) -> list[str]:
    """/metrics in the same JVM, if the agent is among the jars; Kafka runs without it, too."""
    found = sorted(jars.glob(METRICS_AGENT))
    if not found or not settings.get(METRICS):
        return []
    return [f"-javaagent:{found[-1]}={settings[METRICS]}:{METRICS_RULES}"]


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


def readiness(admin: str) -> tuple[bool, str]:
    """Whether the broker serves its clients, as /readyz says; and if it does not, why."""
    host, _, port = admin.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status == 200, _reasons(answer.read(REASONS_BYTES_MAX))
    except (OSError, http.client.HTTPException):
        return False, ""
    finally:
        connection.close()


def _reasons(body: bytes) -> str:
    """Of {"ready": false, "reasons": {"storage": "…"}}."""
    try:
        reasons = msgspec.json.decode(body, type=Readiness).reasons
    except msgspec.DecodeError:
        return ""
    return "; ".join(reasons.values())


def _how(code: int, last_words: str) -> str:
    if code < 0:  # one that is killed has no time for last words: what is there is older
        return f"it was ended by {_signal_name(-code)}"
    return f"it ended with exit code {code}" + (f": {last_words}" if last_words else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _born(pid: int) -> int | None:
    """When the process was born, in clock ticks since boot; None if there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _escaped(value: str) -> str:
    """As a properties file wants it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
