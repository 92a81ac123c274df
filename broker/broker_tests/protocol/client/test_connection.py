"""One connection to a server that is slow, closes the connection or is not a Kafka broker."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from broker_tests.protocol.client.scripted_server import ScriptedServer
from odradek_protocol.client.connection import ANSWER_BYTES_MAX, Connection
from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.errors import (
    AddressError,
    AnswerTimeoutError,
    ClientError,
    DisconnectedError,
    UnreachableError,
    UnreadableAnswerError,
    UnsupportedApiError,
)
from odradek_protocol.client.settings import (
    Address,
    ClientSettings,
    Exchange,
    parse_bootstrap,
)
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ports import free_port

CLUSTER = Struct(cluster_id="scripted", brokers=[])


def ask(server: ScriptedServer, deadline_s: float = 10.0) -> Struct:
    connection = Connection(server.address, ClientSettings())
    try:
        return connection.call(ApiKey.DESCRIBE_CLUSTER, Struct(), Deadline(deadline_s))
    finally:
        connection.close()


# -- versions --------------------------------------------------------------------------------------


def test_the_highest_common_version_is_used() -> None:
    with ScriptedServer() as server:
        server.on(ApiKey.DESCRIBE_CLUSTER, lambda _: CLUSTER)
        server.versions[ApiKey.DESCRIBE_CLUSTER] = range(0, 2)
        assert ask(server).cluster_id == "scripted"
        assert server.requests[-1][:2] == (ApiKey.DESCRIBE_CLUSTER, 1)
        server.versions[ApiKey.DESCRIBE_CLUSTER] = range(1, 99)
        ask(server)
        assert server.requests[-1][:2] == (ApiKey.DESCRIBE_CLUSTER, 2)


def test_a_broker_with_an_older_api_versions_is_asked_again_in_its_own_version() -> None:
    with ScriptedServer() as server:
        server.on(ApiKey.DESCRIBE_CLUSTER, lambda _: CLUSTER)
        server.versions[ApiKey.API_VERSIONS] = range(0, 3)
        assert ask(server).cluster_id == "scripted"
        assert server.requests[0][:2] == (ApiKey.API_VERSIONS, 2)


@pytest.mark.parametrize("offered", [range(7, 9), range(0)])
def test_no_common_version(offered: range) -> None:
    with ScriptedServer() as server:
        server.versions[ApiKey.DESCRIBE_CLUSTER] = offered
        with pytest.raises(UnsupportedApiError, match="DESCRIBE_CLUSTER") as caught:
            ask(server)
        assert str(server.address) in str(caught.value)


def test_the_caller_limits_the_version() -> None:
    with ScriptedServer() as server:
        server.on(ApiKey.DESCRIBE_CLUSTER, lambda _: CLUSTER)
        connection = Connection(server.address, ClientSettings())
        connection.call(ApiKey.DESCRIBE_CLUSTER, Struct(), Deadline(10.0), max_version=0)
        assert server.requests[-1][1] == 0
        connection.close()


# -- failures --------------------------------------------------------------------------------------


def test_a_port_without_a_listener() -> None:
    address = Address("127.0.0.1", free_port())
    with pytest.raises(UnreachableError, match=r"cannot connect to 127.0.0.1:.*refused"):
        Connection(address, ClientSettings())


def test_a_server_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = Address(*deaf.getsockname()[:2])
        with pytest.raises(UnreachableError, match="API_VERSIONS in time"):
            Connection(address, ClientSettings(connect_timeout_s=0.2))


def test_a_server_of_another_protocol() -> None:
    def answer(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(1)
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with pytest.raises(UnreachableError, match="but not Kafka's protocol"):
            Connection(Address(*listener.getsockname()[:2]), ClientSettings())
        thread.join()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "closed the connection before it answered DESCRIBE_CLUSTER"),
        (struct.pack(">i", 100) + b"ten bytes.", "in the middle of the answer"),
    ],
)
def test_a_connection_that_closes_in_the_middle(answer: bytes | None, words: str) -> None:
    with ScriptedServer() as server:
        server.on(ApiKey.DESCRIBE_CLUSTER, lambda _: answer)
        with pytest.raises(DisconnectedError, match=words) as caught:
            ask(server)
        assert str(server.address) in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", ANSWER_BYTES_MAX + 1),
        struct.pack(">i", -1),
        struct.pack(">ii", 4, 77),  # another correlation id
        struct.pack(">iib", 5, 2, 0) + b"",  # the right one, and no body
        struct.pack(">iib", 30, 2, 0) + b"\xff" * 25,
    ],
)
def test_an_unreadable_answer(answer: bytes) -> None:
    with ScriptedServer() as server:
        server.on(ApiKey.DESCRIBE_CLUSTER, lambda _: answer)
        with pytest.raises(UnreadableAnswerError, match="DESCRIBE_CLUSTER"):
            ask(server)


def test_an_answer_that_does_not_come_in_time() -> None:
    going_on = threading.Event()
    with ScriptedServer() as server:

        def late(_: Struct) -> Struct:
            going_on.wait()
            return CLUSTER

        server.on(ApiKey.DESCRIBE_CLUSTER, late)
        with pytest.raises(AnswerTimeoutError, match="DESCRIBE_CLUSTER"):
            ask(server, deadline_s=0.1)
        going_on.set()


# -- addresses and the seam for TLS and SASL ------------------------------------------------------


def test_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:2,a:1,") == [Address("a", 1), Address("::1", 2)]
    assert str(Address("::1", 2)) == "[::1]:2"
    for wrong in ("a", "a:", ":1", "a:b", "a:0", "a:65536"):
        with pytest.raises(AddressError, match="expected host:port"):
            parse_bootstrap(wrong)


def test_security_wraps_the_socket_and_speaks_before_the_first_request() -> None:
    events: list[str] = []

    class Recorded:
        def wrap(self, connected: socket.socket, host: str) -> socket.socket:
            events.append(f"wrap {host}")
            return connected

        def authenticate(self, exchange: Exchange) -> None:
            answer = exchange(ApiKey.SASL_HANDSHAKE, Struct(mechanism="PLAIN"))
            events.append(f"handshake {answer.mechanisms}")
            raise ClientError("refused")

    with ScriptedServer() as server:
        server.on(ApiKey.SASL_HANDSHAKE, lambda r: Struct(mechanisms=[r.mechanism]))
        with pytest.raises(ClientError, match="refused"):
            Connection(server.address, ClientSettings(security=Recorded()))
    assert events == ["wrap 127.0.0.1", "handshake ['PLAIN']"]
