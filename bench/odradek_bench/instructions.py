"""Counts the instructions of the compiled broker per small request: `make bench-instructions`.

Time on a shared machine is noisy, instructions are not: valgrind's callgrind counts the same
number twice for the same program and requests, whatever else runs. Two commits are compared by
running this in a checkout of each. Instructions inside the kernel are not counted.

    produce:  35,412 instructions per request
    fetch:    41,020 instructions per request

The same requests are also counted over TLS, and with 10,000 ACLs, of which one allows them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from odradek_bench import raw
from odradek_bench.engines import tls_listeners
from odradek_testkit.clients import create_topic
from odradek_testkit.engines import RunningBroker

CONNECTIONS = 100  # one request of each is handled in the same pass of the broker's loop
WARM_UP_ROUNDS = 10
ROUNDS = 200
START_DEADLINE_S = 180.0  # valgrind is about fifty times slower
TOPIC = "instructions"
ACLS = 10_000
ACLS_PER_REQUEST = 1_000
ACL_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # so that the first ACLs can be created
}
KINDS = ("plain", "tls", "acls")


class CountedBroker(RunningBroker):
    """A broker under callgrind, which counts only between `begin` and `end`."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        # The session must outlast the slow start.
        settings = {"broker.session.timeout.ms": "60000", **settings}
        super().__init__(settings, directory=directory)
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


def per_request(broker: CountedBroker, address: str, request: Callable[[int], bytes]) -> float:
    connections = [raw.greeted(address) for _ in range(CONNECTIONS)]

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


def create_acls(bootstrap: str) -> None:
    """Of other users and topics, a third of them prefixed, and those that allow the requests."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 180_000})
    acls = [_acl("ANONYMOUS", TOPIC, AclOperation.ALL)]
    for number in range(ACLS - 1):
        acls.append(_acl(f"u{number % 500}", f"t{number}", AclOperation.READ, number % 3 == 0))
    for at in range(0, ACLS, ACLS_PER_REQUEST):
        created = admin.create_acls(acls[at : at + ACLS_PER_REQUEST], request_timeout=180)
        for future in created.values():
            future.result(180)


def _acl(user: str, name: str, operation: AclOperation, prefixed: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(
        ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW
    )


def count(kind: str, directory: Path) -> None:
    settings, address = ({}, "") if kind != "tls" else tls_listeners(directory)
    broker = CountedBroker(directory, ACL_SETTINGS if kind == "acls" else settings)
    broker.start(START_DEADLINE_S)
    try:
        create_topic(broker, TOPIC)
        if kind == "acls":
            create_acls(broker.bootstrap)
        record = raw.batch([b"x" * 100])
        cases: dict[str, Callable[[int], bytes]] = {
            "produce": lambda _: raw.produce_request(TOPIC, 0, record),
            "fetch": lambda _: raw.fetch_request(TOPIC, 0, 0, max_bytes=1000),
        }
        for name, request in cases.items():
            counted = per_request(broker, address or broker.bootstrap, request)
            print(f"{kind}, {name}: {counted:,.0f} instructions per request", flush=True)
    finally:
        broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="odradek_bench.instructions", description=__doc__)
    parser.add_argument("--kind", default="", choices=["", *KINDS], help="one of them only")
    only = parser.parse_args().kind
    missing = [name for name in ("valgrind", "callgrind_control") if shutil.which(name) is None]
    if missing:
        print(f"{missing[0]} is missing: apt-get install -y valgrind", file=sys.stderr)
        return 1
    for kind in (only,) if only else KINDS:
        with tempfile.TemporaryDirectory() as directory:
            count(kind, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
