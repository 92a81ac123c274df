"""`make bench-loop`: how long a large piece of work blocks the event loop of our broker.

- one CreateTopics of 20,000 partitions
- a restart with 50,000 partitions
- the death of a broker that leads a third of 30,000 partitions, seen at the controller and at the
  third broker

A probe asks for ApiVersions on a connection of its own, all the time; its longest wait is how long
the loop was blocked (and how long the broker got no CPU: use a quiet machine). The
brokers measure each pass of their loops themselves (watched_broker.py), which separates the two:
how long a pass lasted, and how much of that the loop computed. Only the broker that was killed
may be fenced. adr/0015 has what was measured.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from odradek_bench.engines import ODRADEK, Odradek, Servers, many, one, running
from odradek_bench.raw import API_VERSIONS, frame
from odradek_bench.stats import quantile
from odradek_bench.watched_broker import PASS, PASS_MS_MIN
from odradek_testkit.engines import Server

TIMEOUT_S = 300.0
PASS_LINE = re.compile(rf"{PASS} (\d+) ms, cpu (\d+) ms, queued (\d+) ms")
PER_TOPIC = 100
TOPICS_PER_REQUEST = 50


class Probe:
    """The waits of one client for answers to a tiny request."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.bootstrap.rpartition(":")
        self._address = host, int(port)
        self._server = server
        self._over = threading.Event()
        self._waits_ms: list[float] = []

    @contextmanager
    def watching(self, what: str) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        logged = len(self._server.log())
        began = time.monotonic()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        waits = self._waits_ms or [0.0]
        print(
            f"{what}: {time.monotonic() - began:.1f} s, {len(waits)} probes, "
            f"p99 {quantile(waits, 0.99):.0f} ms, longest {max(waits):.0f} ms",
            flush=True,
        )
        print(longest_passes(self._server.log()[logged:]), flush=True)

    def _run(self) -> None:
        request = frame(API_VERSIONS, 0, b"")
        while not self._over.wait(0.005):
            with suppress(OSError), socket.create_connection(self._address, TIMEOUT_S) as sock:
                while not self._over.wait(0.002):
                    began = time.monotonic()
                    sock.sendall(request)
                    left = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
                    if not left or len(sock.recv(left, socket.MSG_WAITALL)) < left:
                        break  # the broker is stopping
                    self._waits_ms.append((time.monotonic() - began) * 1000)


def longest_passes(log: str) -> str:
    """Of what a watched broker logged: the longest pass, and the most that one computed."""
    passes = [tuple(map(int, found)) for found in PASS_LINE.findall(log)]
    if not passes:
        return f"    no pass of the loop took {PASS_MS_MIN:.0f} ms"
    wall, cpu, queued = max(passes)
    return (
        f"    {len(passes)} passes of {PASS_MS_MIN:.0f} ms or more; the longest {wall} ms, of "
        f"which the loop computed {cpu} ms and waited {queued} ms for a core; "
        f"the most that one computed {max(cpu for _, cpu, _ in passes)} ms"
    )


def create(
    server: Server, prefix: str, partitions: int, *, factor: int = 1, at_once: bool = False
) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    new = [NewTopic(f"{prefix}-{i}", PER_TOPIC, factor) for i in range(partitions // PER_TOPIC)]
    step = len(new) if at_once else TOPICS_PER_REQUEST
    for at in range(0, len(new), step):
        made = admin.create_topics(
            new[at : at + step], request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S
        )
        for future in made.values():
            future.result(TIMEOUT_S)


def watched(servers: Servers, logs: Path | None) -> AbstractContextManager[Servers]:
    """They run, and their logs are kept in `logs`."""
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        for member in servers.members:
            member.log_path = logs / f"{member.directory.name}.log"
    return running(servers)


def large_create(directory: Path, partitions: int, logs: Path | None) -> None:
    with watched(one(ODRADEK, directory / "create"), logs) as servers:
        with Probe(servers.only).watching(f"one CreateTopics of {partitions} partitions"):
            create(servers.only, "large", partitions, at_once=True)
        check_fenced(servers.members, killed=None)


def restart(directory: Path, partitions: int, logs: Path | None) -> None:
    with watched(one(ODRADEK, directory / "restart"), logs) as servers:
        create(servers.only, "many", partitions)
        servers.stop()
        with Probe(servers.only).watching(f"a restart with {partitions} partitions"):
            servers.start()
            time.sleep(5.0)
        check_fenced(servers.members, killed=None)


def death(directory: Path, partitions: int, logs: Path | None) -> None:
    with watched(many(ODRADEK, directory, 3), logs) as servers:
        create(servers.members[0], "many", partitions, factor=3)
        first, second, victim = servers.members
        title = f"a broker dies that led a third of {partitions} partitions, seen at another"
        with (
            Probe(first).watching(f"{title} (1)"),
            Probe(second).watching(f"{title} (2)"),
        ):
            victim.kill()
            time.sleep(15.0)
        check_fenced(servers.members, killed=3)


def check_fenced(members: list[Server], killed: int | None) -> None:
    """Lines that are logged before a broker registers may be about the process before it."""
    wrong = []
    for member in members:
        since_registration = member.log().rpartition("registered with broker epoch")[2]
        for line in since_registration.splitlines():
            if "is fenced: silent" in line and (killed is None or f"broker {killed} " not in line):
                wrong.append(line)
    if wrong:
        raise SystemExit("fenced for silence:\n" + "\n".join(wrong))


RUNS = {"create": (large_create, 20_000), "restart": (restart, 50_000), "death": (death, 30_000)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="odradek_bench.loop_time", description=__doc__)
    parser.add_argument("--case", default="", help=f"only one of {', '.join(RUNS)}")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size")
    parser.add_argument("--logs", type=Path, help="keep the logs of the brokers here")
    options = parser.parse_args()
    Odradek.module = "odradek_bench.watched_broker"
    for name, (run, partitions) in RUNS.items():
        if not name.startswith(options.case):
            continue
        directory = Path(tempfile.mkdtemp(prefix="odradek-loop-"))
        try:
            size = int(partitions * options.share) // PER_TOPIC * PER_TOPIC
            run(directory, size, options.logs)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
