"""How a client connects: its name, its time limits, and the seam for TLS and SASL."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from odradek_protocol.client.errors import AddressError
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """ "kafka:9092" or "[::1]:9092"."""
        host, _, port = text.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise AddressError(f"address {text!r}: expected host:port, for example localhost:9092")
        return cls(host, int(port))


def parse_bootstrap(text: str) -> list[Address]:
    """ "a:9092,b:9092" → their addresses, in this order, each once."""
    return list(dict.fromkeys(Address.parse(one) for one in text.split(",") if one.strip()))


Exchange = Callable[[ApiKey, Struct], Struct]


class Security(Protocol):
    """The step between the TCP connection and the first request: TLS and SASL."""

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """The socket to use from here on, for example after a TLS handshake with `host`."""
        ...

    def authenticate(self, exchange: Exchange) -> None:
        """Sends SaslHandshake and SaslAuthenticate through `exchange`; raises ClientError."""
        ...


class Plaintext:
    """No encryption, no authentication."""

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:  # noqa: ARG002
        return connected

    def authenticate(self, exchange: Exchange) -> None:
        pass


PLAINTEXT = Plaintext()


@dataclass(frozen=True)
class ClientSettings:
    client_id: str = "odradek"
    connect_timeout_s: float = 5.0  # TCP, TLS, ApiVersions and SASL together
    request_timeout_s: float = 30.0  # of one attempt of a request that changes something
    read_timeout_s: float = 10.0  # of one attempt of a read: after it another broker is asked
    deadline_s: float = 30.0  # of a call with all its attempts
    security: Security = PLAINTEXT
