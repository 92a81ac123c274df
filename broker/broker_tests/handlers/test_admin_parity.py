"""The same admin requests to our broker and to Apache Kafka get the same answers.

Messages are compared as well as codes, because scripts and people read them. Intended differences
are in DIFFERENT, with the reason.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker_tests.handlers.parity_requests import Step, describe
from broker_tests.handlers.parity_script import steps
from odradek_protocol.messages.api import decode_response, encode_request, flexible, request_header
from odradek_protocol.messages.struct import Struct
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server

pytestmark = pytest.mark.java

# Apache Kafka publishes metadata to its broker part a little after it has answered.
PUBLISH_DEADLINE_S = 10.0

SETTINGS = {"num.partitions": "2", "log.retention.hours": "24"}

# Fields that are different in every run, or of which only the presence matters.
VARYING = {"cluster_id", "port", "log_dir", "total_bytes", "usable_bytes", "topic_id"}

DIFFERENT = {
    "metadata created by asking v13": "our new topic is ready in the first answer",
    "describe one broker": "while log.retention.ms is set dynamically, Apache Kafka shows the "
    "default of log.retention.hours as its value, and the file as its source",
}


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._count = 0

    def ask(self, step: Step) -> Any:
        self._count += 1
        head = request_header(step.api_key, step.version, self._count, "parity")
        frame = head + encode_request(step.api_key, step.version, step.request)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        response = self._exactly(size)
        at = 5 if flexible(step.api_key, step.version) else 4
        return plain(decode_response(step.api_key, step.version, response, at))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the broker closed the connection"
            data += part
        return bytes(data)


@contextmanager
def client(server: Server) -> Iterator[Client]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        yield Client(connection)


def plain(value: Any) -> Any:
    """Varying fields by their type only; lists sorted, except those of partitions."""
    if isinstance(value, Struct):
        fields = {}
        for name, field in sorted(vars(value).items()):
            fields[name] = type(field).__name__ if name in VARYING else plain(field)
        return fields
    if isinstance(value, (list, tuple)):
        # With eligible leader replicas on, Kafka keeps this setting at cluster level.
        kept = [v for v in value if getattr(v, "name", None) != "min.insync.replicas"]
        return sorted((plain(v) for v in kept), key=repr)
    if isinstance(value, UUID):
        return "uuid"
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


@contextmanager
def both_engines(settings: dict[str, str], directory: Path) -> Iterator[tuple[Client, Client]]:
    """Clients of Apache Kafka and of our broker, with the same settings."""
    with (
        RunningApacheKafka(settings, directory=directory / "apache") as apache,
        RunningBroker(settings, directory=directory / "ours") as ours,
        client(apache) as ask_apache,
        client(ours) as ask_ours,
    ):
        yield ask_apache, ask_ours


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    with both_engines(SETTINGS, tmp_path_factory.mktemp("parity")) as both:
        yield both


def test_same_answers(clients: tuple[Client, Client]) -> None:
    apache, ours = clients
    wrong = []
    for step in steps():
        mine = ours.ask(step)
        theirs = _agreeing(apache, step, mine)
        if (mine != theirs) != (step.label in DIFFERENT):
            wrong.append(f"{step.label}\n  apache  {theirs}\n  odradek {mine}")
    assert not wrong, "\n".join(wrong)


# So that a single node starts without a file; and shorter times, see adr/0007.
OTHER_DEFAULTS = (
    "node.id",
    "process.roles",
    "controller.listener.names",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
)


def test_same_broker_settings(clients: tuple[Client, Client]) -> None:
    """Every name, type, default, and whether it can be changed at run time."""
    apache, ours = ({c["name"]: c for c in _settings(asked)} for asked in clients)
    assert apache.keys() == {name for name in ours if not name.startswith("odradek.")}
    for name, theirs in apache.items():
        mine = ours[name]
        for field in ("config_type", "read_only", "is_sensitive"):
            assert (name, field, mine[field]) == (name, field, theirs[field])
        if name not in OTHER_DEFAULTS:
            assert (name, _default(mine)) == (name, _without_java(_default(theirs)))


def _settings(asked: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked.ask(describe("every broker setting", 4, "1"))["results"]
    entries: list[dict[str, Any]] = found[0]["configs"]
    return entries


def _default(entry: dict[str, Any]) -> str | None:
    given = [s["value"] for s in entry["synonyms"] if s["source"] == 5]
    return given[-1] if given else None


def _without_java(default: str | None) -> str | None:
    return None if default and default.startswith("org.apache.") else default


def _agreeing(apache: Client, step: Step, mine: Any) -> Any:
    """Apache Kafka's answer; for a read, once it has caught up with the write before it."""
    give_up = time.monotonic() + PUBLISH_DEADLINE_S
    theirs = apache.ask(step)
    while step.reads and theirs != mine and step.label not in DIFFERENT:
        if time.monotonic() > give_up:
            break
        time.sleep(0.05)
        theirs = apache.ask(step)
    return theirs
