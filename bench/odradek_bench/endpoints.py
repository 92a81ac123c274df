"""Addresses of a server: plain ones, and ones that are reached over TLS.

    127.0.0.1:9092                        plain text
    ssl://127.0.0.1:9093?ca=/path/ca.pem  TLS, trusting the certificates of that file

Everything that opens a connection reads them here, so that a case measures the same load with and
without TLS. TLS is 1.3 with one cipher, the one that both engines choose by default.
"""

from __future__ import annotations

import functools
import socket
import ssl
from typing import NamedTuple

from odradek_bench.verify import WrongAnswerError

CIPHER = "TLS_AES_256_GCM_SHA384"
_PREFIX, _CA = "ssl://", "?ca="


class Endpoint(NamedTuple):
    """Servers as a client needs them; without a CA the connection is plain text."""

    servers: str
    ca_file: str

    @property
    def client_settings(self) -> dict[str, str | int | float | bool]:
        """For librdkafka, which is quiet unless something is wrong."""
        tls = {"security.protocol": "ssl", "ssl.ca.location": self.ca_file} if self.ca_file else {}
        return {"bootstrap.servers": self.servers, "log_level": 2, **tls}


def endpoint(address: str) -> Endpoint:
    if not address.startswith(_PREFIX):
        return Endpoint(address, "")
    servers, _, ca_file = address.removeprefix(_PREFIX).partition(_CA)
    return Endpoint(servers, ca_file)


def tls_address(servers: str, ca_file: object) -> str:
    return f"{_PREFIX}{servers}{_CA}{ca_file}"


def connect(address: str, timeout_s: float) -> socket.socket:
    """A connection to the first server of an address, its TLS handshake done."""
    servers, ca_file = endpoint(address)
    host, _, port = servers.split(",")[0].rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not ca_file:
        return plain
    secured = _context(ca_file).wrap_socket(plain, server_hostname=host)
    chosen = secured.cipher()
    if chosen is None or chosen[0] != CIPHER:
        secured.close()
        raise WrongAnswerError(f"the broker chose the cipher {chosen}, not {CIPHER}")
    return secured


def decrypted(connection: socket.socket) -> bool:
    """Whether TLS has read bytes ahead that `select` does not know of."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0


@functools.cache
def _context(ca_file: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=ca_file)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made
