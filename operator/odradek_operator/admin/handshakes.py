"""Asks a node over TLS what it serves, and whether it accepts a client certificate.

    der, accepted = ask("127.0.0.1:9091", identity)

A rotation of certificates goes on only after such an observation. The node's certificate is not
verified here: which one it serves is the question. With TLS 1.3 a server refuses a client's
certificate only after the handshake of the client has ended, so a whole request (ApiVersions) is
sent: its answer means that the certificate was accepted.
"""

from __future__ import annotations

import socket
import ssl
import struct

from odradek_operator.security.pki import KeyPair
from odradek_protocol.security.contexts import client_context

TIMEOUT_S = 2.0
_API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)


def ask(address: str, identity: KeyPair | None) -> tuple[bytes | None, bool]:
    """The node's certificate (DER), None without an answer; and whether it accepts `identity`'s."""
    host, _, port = address.rpartition(":")
    context = _context(identity)
    try:
        with (
            socket.create_connection((host, int(port)), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return connection.getpeercert(binary_form=True), _answers(connection)
    except OSError:
        return None, False


def _answers(connection: socket.socket) -> bool:
    try:
        connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
        received = b""
        while len(received) < 8:
            part = connection.recv(8 - len(received))
            if not part:
                return False
            received += part
        return True
    except OSError:
        return False


def _context(identity: KeyPair | None) -> ssl.SSLContext:
    if identity is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        pem = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key_pem.decode(),
            "ssl.keystore.certificate.chain": identity.certificate_pem.decode(),
        }
        context = client_context(pem.get)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
