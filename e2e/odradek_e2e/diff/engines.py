"""Both brokers, and one connection to each: a frame in, an outcome out."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from odradek_e2e.diff.names import Names
from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.messages.api import (
    DecodeError,
    Struct,
    decode_response,
    encode_request,
    flexible,
    request_header,
)
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.headers import API_VERSIONS_KEY
from odradek_protocol.security.sasl_client import Login
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server

# An engine that has not answered by then waits for another event.
PATIENCE_S = 6.0
LOGIN_VERSION = 1  # of SaslHandshake and SaslAuthenticate: not flexible

SETTINGS = {
    "num.partitions": "2",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request: an answer, a closed connection, or silence."""

    kind: str  # "answer", "closed", "silence", "unreadable"
    answer: Struct | None = None


@dataclass
class Engine:
    """One engine with a connection, and the names of the ids that it assigned."""

    name: str
    server: Server
    names: Names = field(default_factory=Names)
    host: str = "127.0.0.1"  # where the connection comes from
    login: Login | None = None  # of SASL, if the listener asks for it
    _socket: socket.socket | None = None
    _count: int = 0

    def ask(self, api_key: int, version: int, frame: bytes) -> Outcome:
        """Sends a frame with correlation id 0; the answer is decoded with the same version."""
        try:
            response = self._exchange(frame)
        except TimeoutError:
            self.hang_up()
            return Outcome("silence")
        except OSError:
            self.hang_up()
            return Outcome("closed")
        return read_answer(api_key, version, response)

    def tell(self, frame: bytes) -> Outcome:
        """For a request that has no answer (acks=0): whether the connection survives it."""
        probe = struct.pack(">hhih", API_VERSIONS_KEY, 0, 77, -1)
        try:
            self._send(frame)
            response = self._exchange(probe)
        except OSError:
            self.hang_up()
            return Outcome("closed")
        if response[:4] == struct.pack(">i", 77):
            return Outcome("silence")
        self.hang_up()
        return Outcome("unreadable")

    def come_from(self, host: str, login: Login | None = None) -> None:
        """Continues on a connection from another address or of another user."""
        if (host, login) != (self.host, self.login):
            self.hang_up()
            self.host, self.login = host, login

    def hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, frame: bytes) -> bytes:
        self._send(frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _send(self, frame: bytes) -> None:
        if self._socket is None:
            address = ("127.0.0.1", self.server.port)
            self._socket = socket.create_connection(
                address, timeout=PATIENCE_S, source_address=(self.host, 0)
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            SecuritySettings(login=self.login).authenticate(self._log_in)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _log_in(self, api: ApiKey, request: Struct) -> Struct:
        """One step of the login, on the new connection."""
        frame = request_header(api, LOGIN_VERSION, 0, "diff")
        response = self._exchange(frame + encode_request(api, LOGIN_VERSION, request))
        return decode_response(api, LOGIN_VERSION, response, 4)

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return bytes(data)


def read_answer(api_key: int, version: int, response: bytes) -> Outcome:
    """Decodes an answer; ApiVersions answers an unknown version in the format of v0."""
    at = 5 if flexible(api_key, version) and api_key != API_VERSIONS_KEY else 4
    for attempt in (version, 0) if api_key == API_VERSIONS_KEY else (version,):
        try:
            return Outcome("answer", decode_response(api_key, attempt, response, at))
        except DecodeError:
            continue
    return Outcome("unreadable")


@contextmanager
def both_engines(
    directory: Path, settings: dict[str, str] | None = None
) -> Iterator[tuple[Engine, Engine]]:
    """One new broker of each engine: ours, then Apache Kafka."""
    all_settings = {**SETTINGS, **(settings or {})}
    with (
        RunningApacheKafka(all_settings, directory=directory / "apache") as theirs,
        # As long as the other name: requests contain the path, and damage must hit the same byte.
        RunningBroker(all_settings, directory=directory / "broker") as mine,
    ):
        ours, apache = Engine("embedded", mine), Engine("apache", theirs)
        for engine in (ours, apache):
            engine.names.learn("log dir", str(engine.server.data_dir))
        try:
            yield ours, apache
        finally:
            ours.hang_up()
            apache.hang_up()
