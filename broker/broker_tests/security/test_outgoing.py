"""Connections of this broker to others: which certificates it accepts."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from broker_tests.security.tls_support import Authority, tls_settings
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_protocol.security.contexts import client_context, server_context

OTHER_NAME = "TLS: .*(mismatch|not valid for)"
OTHER_CA = "TLS: .*(unable to get local issuer|self-signed)"


async def connect_to(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """As to another broker that is called localhost. Raises ConnectionError."""
    listening = await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=server
    )
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, listening.sockets[0].getsockname())
        stream, _ = await PeerSecurity(client, None).secure(sock, "localhost", loop)
        stream.close()
    finally:
        sock.close()
        listening.close()
        await listening.wait_closed()


@pytest.mark.parametrize(
    ("algorithm", "name", "refused"),
    [
        (None, "localhost", None),
        ("https", "localhost", None),
        ("HTTPS", "broker-2.example", OTHER_NAME),
        (None, "broker-2.example", OTHER_NAME),  # https is the default
        ("", "broker-2.example", None),  # any certificate of the CA
        ("", None, OTHER_CA),  # the CA is checked in any case
    ],
)
def test_the_name_in_the_certificate_of_another_broker(
    tmp_path: Path, algorithm: str | None, name: str | None, refused: str | None
) -> None:
    """ssl.endpoint.identification.algorithm; None as a name: a certificate of another CA."""
    authority = Authority.make(tmp_path / "tls")
    issuer = authority if name else Authority.make(tmp_path / "other")
    server = server_context(tls_settings(issuer, issuer.issue("server", name or "localhost")).get)
    settings = tls_settings(authority, authority.issue("client"))
    if algorithm is not None:
        settings["ssl.endpoint.identification.algorithm"] = algorithm
    client = client_context(settings.get)
    if refused is None:
        asyncio.run(connect_to(server, client))
        return
    with pytest.raises(ConnectionError, match=refused):
        asyncio.run(connect_to(server, client))
