"""TLS and SASL of a client, from Java-style properties as in `--command-config` files.

security = SecuritySettings.from_properties({"security.protocol": "SASL_SSL", …})
KafkaClient("broker:9093", ClientSettings(security=security))
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from odradek_protocol.client.errors import AuthenticationError, UnreachableError
from odradek_protocol.client.settings import Exchange
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_protocol.security.contexts import client_context
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.sasl_client import Login, advance, login_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class SecuritySettings:
    """`tls` None: no encryption. `login` None: no SASL."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> SecuritySettings:
        """Raises SecurityError, whose text names the setting."""
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise SecurityError(f"security.protocol {protocol}: must be {', '.join(PROTOCOLS)}")
        tls = client_context(properties.get) if protocol.endswith("SSL") else None
        login = None
        if protocol.startswith("SASL"):
            mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
            if not mechanism:
                raise SecurityError(f"security.protocol {protocol} needs sasl.mechanism")
            login = login_of(mechanism, properties.get)
        return cls(tls, login)

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        if self.tls is None:
            return connected
        try:
            return self.tls.wrap_socket(connected, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"{host}: the certificate of the broker is not accepted: {error.verify_message} "
                "(ssl.truststore.location, ssl.endpoint.identification.algorithm)"
            ) from error
        except OSError as error:
            raise UnreachableError(
                f"{host}: no TLS connection: {error.strerror or error}; is this a listener with "
                "TLS (security.protocol)?"
            ) from error

    def authenticate(self, exchange: Exchange) -> None:
        if self.login is None:
            return
        answer = exchange(ApiKey.SASL_HANDSHAKE, Struct(mechanism=self.login.mechanism))
        if answer.error_code != ErrorCode.none:
            raise AuthenticationError(
                f"the broker does not offer SASL mechanism {self.login.mechanism}; it offers "
                f"{', '.join(answer.mechanisms) or 'none'}"
            )
        try:
            tokens = self.login.exchange()
            token: bytes | None = next(tokens)
            while token is not None:
                answer = exchange(ApiKey.SASL_AUTHENTICATE, Struct(auth_bytes=token))
                if answer.error_code != ErrorCode.none:
                    raise AuthenticationError(answer.error_message or "authentication failed")
                token = advance(tokens, answer.auth_bytes)
        except SecurityError as error:
            raise AuthenticationError(str(error)) from error
