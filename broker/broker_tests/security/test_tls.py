"""TLS listeners: real handshakes against a broker process."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.tls_support import (
    Authority,
    client,
    listener,
    tls_settings,
    trusting,
)
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_protocol.client.errors import ClientError
from odradek_testkit.engines import on_apache
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="settings and logs of our broker")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path / "tls")


def test_a_client_that_trusts_the_ca_is_served(
    start_broker: StartBroker, authority: Authority
) -> None:
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    with client(broker.bootstrap, trusting(authority)) as kafka:
        assert create_topics(kafka, [NewTopic("orders", partitions=3)]) == {}
        assert "orders" in kafka.metadata().topics
    foreign = Authority.make(authority.directory / "foreign")
    with (
        pytest.raises(ClientError, match="certificate of the broker is not accepted"),
        client(broker.bootstrap, trusting(foreign)) as kafka,
    ):
        kafka.metadata()


def test_a_required_certificate_names_the_principal(
    start_broker: StartBroker, authority: Authority
) -> None:
    broker = start_broker(
        listener(
            "SSL",
            **tls_settings(authority, authority.issue("server")),
            **{"ssl.client.auth": "required"},
        )
    )
    own = authority.issue("alice", "alice.example", common_name="alice")
    properties = trusting(authority)
    properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
    with client(broker.bootstrap, properties) as kafka:
        assert kafka.metadata().brokers
    with pytest.raises(ClientError), client(broker.bootstrap, trusting(authority)) as kafka:
        kafka.metadata()
    foreign = Authority.make(authority.directory / "foreign")
    stranger = foreign.issue("mallory", "mallory.example")
    properties |= {"ssl.keystore.location": str(stranger)}
    with pytest.raises(ClientError), client(broker.bootstrap, properties) as kafka:
        kafka.metadata()
    wait_until(lambda: "the client's certificate is not accepted" in broker.log())


def test_clients_of_a_ca_removed_from_trust_are_refused(
    start_broker: StartBroker, authority: Authority
) -> None:
    """1. clients of two CAs are served; 2. the trust store is replaced by one without the second
    CA; 3. its client is refused, without a restart; the other one is served."""
    second = Authority.make(authority.directory / "second")
    trusted = authority.directory / "both.pem"
    trusted.write_bytes(authority.trusted().read_bytes() + second.trusted().read_bytes())
    broker = start_broker(
        listener(
            "SSL",
            **tls_settings(authority, authority.issue("server"))
            | {
                "ssl.client.auth": "required",
                "ssl.truststore.location": str(trusted),
                "odradek.ssl.reload.interval.ms": "50",
            },
        )
    )

    def served(issuer: Authority) -> bool:
        own = issuer.issue("client", "client.example")
        properties = trusting(authority)
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
        try:
            with client(broker.bootstrap, properties) as kafka:
                return bool(kafka.metadata().brokers)
        except ClientError:
            return False

    assert served(authority)
    assert served(second)
    trusted.write_bytes(authority.trusted().read_bytes())
    wait_until(lambda: "the new certificate or trust store is used" in broker.log())
    assert served(authority)
    assert not served(second)
    wait_until(lambda: "the client's certificate is not accepted" in broker.log())


def test_a_plaintext_client_on_a_tls_port_is_logged(
    start_broker: StartBroker, authority: Authority
) -> None:
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    with socket.create_connection(("127.0.0.1", broker.port), 10) as plain:
        plain.sendall(bytes.fromhex("0000000a00120000000000010000"))
        with suppress(ConnectionResetError):
            assert plain.recv(10) == b""
    wait_until(lambda: "a client without TLS on listener SSL" in broker.log())


def test_a_tls_client_on_a_plaintext_port_is_logged(start_broker: StartBroker) -> None:
    broker = start_broker()
    context = ssl.create_default_context()
    with (
        socket.create_connection(("127.0.0.1", broker.port), 10) as plain,
        pytest.raises(OSError),  # noqa: PT011 - closed, in one way or another
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    wait_until(lambda: "a client with TLS on listener PLAINTEXT" in broker.log())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_offered(
    start_broker: StartBroker, authority: Authority, version: ssl.TLSVersion
) -> None:
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    context = ssl.create_default_context(cafile=str(authority.trusted()))
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", broker.port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        assert (
            secured.version()
            == {
                ssl.TLSVersion.TLSv1_2: "TLSv1.2",
                ssl.TLSVersion.TLSv1_3: "TLSv1.3",
            }[version]
        )


def test_old_versions_are_refused(start_broker: StartBroker, authority: Authority) -> None:
    settings = tls_settings(authority, authority.issue("server"))
    broker = start_broker(listener("SSL", **settings, **{"ssl.enabled.protocols": "TLSv1.3"}))
    context = ssl.create_default_context(cafile=str(authority.trusted()))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", broker.port), 10) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_a_new_certificate_is_used_without_a_restart(
    start_broker: StartBroker, authority: Authority
) -> None:
    """1. a client connects; 2. the file is replaced by one of another CA; 3. a new client that
    trusts only the new CA connects, and the old connection still works; 4. a broken file changes
    nothing, and the log says so."""
    server = authority.issue("server")
    settings = tls_settings(authority, server)
    broker = start_broker(listener("SSL", **settings, **{"odradek.ssl.reload.interval.ms": "50"}))
    other = Authority.make(authority.directory / "other")
    with client(broker.bootstrap, trusting(authority)) as first:
        first.metadata()
        server.write_bytes(other.issue("server").read_bytes())
        wait_until(lambda: "the new certificate or trust store is used" in broker.log())
        with client(broker.bootstrap, trusting(other)) as second:
            second.metadata()
            first.metadata()
            server.write_text("nonsense")
            wait_until(lambda: "the old one stays" in broker.log())
            with client(broker.bootstrap, trusting(other)) as third:
                third.metadata()
