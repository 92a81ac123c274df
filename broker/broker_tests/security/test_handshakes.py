"""Handshakes that do not end, and settings that change while the broker runs."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.tls_support import Authority, client, listener, tls_settings, trusting
from odradek_protocol.client import AnyBroker, ApiKey, Struct
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.stranger import StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="settings and logs of our broker")

SLOW = 200
MEMORY_MAX = 40 * 1024 * 1024


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path / "tls")


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker closed it; with a reset, if it had not read all bytes yet."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_others_are_served_during_200_slow_handshakes(
    start_broker: StartBroker, authority: Authority
) -> None:
    """1. 200 clients send the beginning of a ClientHello and nothing more; 2. a real client is
    served at once; 3. the memory is bounded; 4. past the deadline they are all closed."""
    settings = tls_settings(authority, authority.issue("server"))
    broker = start_broker(
        listener("SSL", **settings, **{"odradek.ssl.handshake.timeout.ms": "3000"})
    )
    assert isinstance(broker, RunningBroker)
    with client(broker.bootstrap, trusting(authority)) as kafka:
        kafka.metadata()
    before = broker.rss_bytes()
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 20))
            for _ in range(SLOW)
        ]
        for one in slow:
            with suppress(ConnectionError):  # the oldest of too many may be closed already
                one.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        for _ in range(5):
            with client(broker.bootstrap, trusting(authority)) as kafka:
                assert kafka.metadata().brokers
        assert broker.rss_bytes() - before < MEMORY_MAX
        assert all(is_closed(one) for one in slow)
    log = broker.log()
    assert "too many at a time" in log or "not complete after 3000 ms" in log


def test_one_address_does_not_end_the_handshakes_of_others(
    start_broker: StartBroker, authority: Authority
) -> None:
    """The attack: more connections than handshakes may run at a time, each new one ending the
    oldest. 1. A client has connected and is slow; 2. another address opens 200 connections;
    3. the first client ends its handshake and is served."""
    settings = tls_settings(authority, authority.issue("server"))
    more = {"odradek.ssl.handshake.timeout.ms": "3600000"}
    broker = start_broker(listener("SSL", **settings, **more))
    context = ssl.create_default_context(cafile=str(authority.trusted()))
    with ExitStack() as stack:
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 60))
        for _ in range(SLOW):
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", broker.port), 60, source_address=("127.0.0.2", 0)
                )
            )
        wait_until(lambda: "too many at a time" in broker.log())
        secured = stack.enter_context(context.wrap_socket(slow, server_hostname="localhost"))
        versions = StrangerConnection(secured).call(ApiKey.API_VERSIONS, 0, Struct())
        assert versions is not None
        assert versions.api_keys


def test_a_key_store_is_changed_by_the_admin_api(
    start_broker: StartBroker, authority: Authority
) -> None:
    """IncrementalAlterConfigs on listener.name.ssl.ssl.keystore.location, as in Kafka."""
    settings = tls_settings(authority, authority.issue("server"))
    broker = start_broker(
        listener("SSL", **settings, **{"odradek.ssl.reload.interval.ms": "3600000"})
    )
    other = Authority.make(authority.directory / "other")
    replacement = other.issue("replacement")
    with client(broker.bootstrap, trusting(authority)) as kafka:
        answer = kafka.call(
            AnyBroker(),
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            Struct(
                resources=[
                    Struct(
                        resource_type=4,
                        resource_name="1",
                        configs=[
                            Struct(
                                name="listener.name.ssl.ssl.keystore.location",
                                config_operation=0,
                                value=str(replacement),
                            )
                        ],
                    )
                ],
                validate_only=False,
            ),
        )
        assert [one.error_code for one in answer.responses] == [0]
        wait_until(lambda: "the new certificate or trust store is used" in broker.log())
        kafka.metadata()  # the existing connection still works
    with client(broker.bootstrap, trusting(other)) as kafka:
        assert kafka.metadata().brokers
