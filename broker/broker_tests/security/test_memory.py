"""The memory of an idle TLS connection."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.tls_support import Authority, listener, tls_settings
from odradek_testkit.engines import RunningBroker, on_apache

pytestmark = pytest.mark.skipif(on_apache(), reason="about the memory of our broker")

CONNECTIONS = 1_000
BYTES_MAX = 60 * 1024


def test_a_thousand_idle_connections(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "tls")
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    assert isinstance(broker, RunningBroker)
    context = ssl.create_default_context(cafile=str(authority.trusted()))
    with ExitStack() as stack:

        def connect() -> None:
            plain = socket.create_connection(("127.0.0.1", broker.port), 60)
            stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))

        for _ in range(50):  # what is allocated once
            connect()
        before = broker.rss_bytes()
        for _ in range(CONNECTIONS):
            connect()
        each = (broker.rss_bytes() - before) / CONNECTIONS
        print(f"{each / 1024:.1f} KB per idle TLS connection")
        assert each < BYTES_MAX
