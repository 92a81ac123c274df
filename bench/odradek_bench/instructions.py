"""Counts the instructions of the compiled broker per small request: `make bench-instructions`.

Time on a shared machine is noisy, instructions are not: valgrind's callgrind counts the same
number twice for the same program and requests, whatever else runs. Two commits are compared by
running this in a checkout of each. Instructions inside the kernel are not counted.

    produce, 100 connections:  35,412 instructions per request
    fetch, 100 connections:    41,020 instructions per request
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from odradek_bench import raw
from odradek_testkit.clients import create_topic
from odradek_testkit.engines import RunningBroker

CONNECTIONS = 100  # one request of each is handled in the same pass of the broker's loop
WARM_UP_ROUNDS = 10
ROUNDS = 200
START_DEADLINE_S = 180.0  # valgrind is about fifty times slower
TOPIC = "instructions"


class CountedBroker(RunningBroker):
    """A broker under callgrind, which counts only between `begin` and `end`."""

    def __init__(self, directory: Path) -> None:
        # The session must outlast the slow start.
        super().__init__({"broker.session.timeout.ms": "60000"}, directory=directory)
        self.counts = directory / "callgrind.out"
        self.wrapper = (
            "valgrind", "--tool=callgrind", "--instr-atstart=no", "-q",
            f"--callgrind-out-file={self.counts}",
        )  # fmt: skip

    def begin(self) -> None:
        self._control("-i", "on")
        self._control("-z")

    def end(self) -> int:
        """The instructions since `begin`."""
        self._control("-d")
        self._control("-i", "off")
        files = self.counts.parent.glob("callgrind.out*")
        newest = max(files, key=lambda path: path.stat().st_mtime_ns)
        for line in newest.read_text().splitlines():
            if line.startswith(("totals:", "summary:")):
                return int(line.split()[1])
        raise RuntimeError(f"{newest} has no totals")

    def _control(self, *arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(self.pid)]
        subprocess.run(command, check=True, capture_output=True)


def per_request(broker: CountedBroker, request: Callable[[int], bytes]) -> float:
    connections = [raw.greeted(broker.bootstrap) for _ in range(CONNECTIONS)]

    def rounds(count: int) -> None:
        for _ in range(count):
            for index, connection in enumerate(connections):
                connection.send(request(index))
            for connection in connections:
                connection.receive()

    rounds(WARM_UP_ROUNDS)
    began = time.monotonic()
    broker.begin()
    rounds(ROUNDS)
    counted = broker.end()
    # Timers and heartbeats run meanwhile: they are counted for as long without requests.
    idle_s = time.monotonic() - began
    broker.begin()
    time.sleep(idle_s)
    counted -= broker.end()
    for connection in connections:
        connection.socket.close()
    return counted / (ROUNDS * CONNECTIONS)


def main() -> int:
    missing = [name for name in ("valgrind", "callgrind_control") if shutil.which(name) is None]
    if missing:
        print(f"{missing[0]} is missing: apt-get install -y valgrind", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        broker = CountedBroker(Path(directory))
        broker.start(START_DEADLINE_S)
        try:
            create_topic(broker, TOPIC)
            record = raw.batch([b"x" * 100])
            cases = {
                "produce": lambda _: raw.produce_request(TOPIC, 0, record),
                "fetch": lambda _: raw.fetch_request(TOPIC, 0, 0, max_bytes=1000),
            }
            for name, request in cases.items():
                count = per_request(broker, request)
                print(f"{name}, {CONNECTIONS} connections: {count:,.0f} instructions per request")
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
