"""`make bench-loop`: how long much work at once keeps the event loop of our broker.

- one CreateTopics of 20,000 partitions
- a restart with 50,000 partitions
- the death of a broker that leads a third of 30,000 partitions, seen at the controller and at the
  third broker

A probe asks for ApiVersions on a connection of its own, all the time; its longest wait is how long
the loop was kept (and how long the machine kept the broker from running: use a quiet one). Nobody
may be fenced for silence but the broker that was killed. adr/0015 has what was measured.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from odradek_bench.engines import ODRADEK, many, one, running
from odradek_bench.raw import API_VERSIONS, frame
from odradek_bench.stats import quantile
from odradek_testkit.engines import Server

TIMEOUT_S = 300.0
PER_TOPIC = 100
TOPICS_PER_REQUEST = 50


class Probe:
    """The waits of one client for answers to a tiny request."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.bootstrap.rpartition(":")
        self._address = host, int(port)
        self._over = threading.Event()
        self._waits_ms: list[float] = []

    @contextmanager
    def watching(self, what: str) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
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


def large_create(directory: Path, partitions: int) -> None:
    with running(one(ODRADEK, directory / "create")) as servers:
        with Probe(servers.only).watching(f"one CreateTopics of {partitions} partitions"):
            create(servers.only, "large", partitions, at_once=True)
        check_fenced(servers.members, killed=None)


def restart(directory: Path, partitions: int) -> None:
    with running(one(ODRADEK, directory / "restart")) as servers:
        create(servers.only, "many", partitions)
        servers.stop()
        with Probe(servers.only).watching(f"a restart with {partitions} partitions"):
            servers.start()
            time.sleep(5.0)
        check_fenced(servers.members, killed=None)


def death(directory: Path, partitions: int) -> None:
    with running(many(ODRADEK, directory, 3)) as servers:
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
    """What is logged before a broker registers may be about the process before it."""
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
    options = parser.parse_args()
    for name, (run, partitions) in RUNS.items():
        if not name.startswith(options.case):
            continue
        directory = Path(tempfile.mkdtemp(prefix="odradek-loop-"))
        try:
            run(directory, int(partitions * options.share) // PER_TOPIC * PER_TOPIC)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
