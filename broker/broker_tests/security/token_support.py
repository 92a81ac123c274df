"""Brokers with delegation tokens, and connections of their users, on both engines.

The listener CLIENTS has PLAIN for the users and SCRAM for tokens; the other listener is open, and
whoever comes through it may do everything.
"""

from __future__ import annotations

import base64
import socket
from pathlib import Path
from typing import Any, Self

from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.messages.api import decode_response, encode_request, flexible, request_header
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_protocol.security.sasl_client import Login
from odradek_testkit.engines import RunningApacheKafka, RunningBroker
from odradek_testkit.ports import free_ports
from odradek_testkit.raw_requests import RawConnection
from odradek_testkit.secured import MECHANISMS, SCRAM_MODULE, secured_settings

KEY = "the-key-of-all-tokens"
USERS = ("root", "alice", "bob", "carol", "dave")
PASSWORD = "password-of-{}"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TIMEOUT_S = 20.0


def token_settings(
    engine: type[RunningBroker] | type[RunningApacheKafka], **more: str
) -> dict[str, str]:
    """The first listener is the open one, the second is CLIENTS. `root` is a super user."""
    own, clients, controller = (f"127.0.0.1:{port}" for port in free_ports(3))
    users = " ".join(f'user_{user}="{PASSWORD.format(user)}"' for user in USERS)
    return {
        **secured_settings(own, clients, controller if engine is RunningApacheKafka else None),
        "super.users": "User:ANONYMOUS;User:root",
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
        "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        "delegation.token.secret.key": KEY,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def addresses(settings: dict[str, str]) -> tuple[str, str]:
    """Of the open listener and of CLIENTS."""
    own, clients, *_ = settings["listeners"].split(",")
    return own.rpartition("//")[2], clients.rpartition("//")[2]


def plain(user: str) -> Login:
    return Login("PLAIN", user, PASSWORD.format(user))


def by_token(token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256") -> Login:
    return Login(mechanism, token_id, base64.b64encode(hmac).decode(), by_token=True)


def jaas_of(token_id: str, hmac: str) -> str:
    """The `sasl.jaas.config` of a login with a token."""
    return f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'


def client_file(path: Path, user: str) -> Path:
    """A --command-config file of a user."""
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="{user}" '
        f'password="{PASSWORD.format(user)}";\n'
    )
    return path


def token_file(path: Path, token_id: str, hmac: str) -> Path:
    """A --command-config file of a login with a token."""
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={jaas_of(token_id, hmac)}\n"
    )
    return path


class UserConnection:
    """A connection of one user; None is the open listener's."""

    def __init__(self, address: str, login: Login | None) -> None:
        """Raises AuthenticationError."""
        host, _, port = address.rpartition(":")
        self.session_lifetime_ms = 0
        self._raw = RawConnection(socket.create_connection((host, int(port)), TIMEOUT_S))
        try:
            SecuritySettings(login=login).authenticate(self._log_in)
        except BaseException:
            self.close()
            raise

    def _log_in(self, api: ApiKey, request: Struct) -> Struct:
        answer: Struct = self.ask(api, 1, **vars(request))
        self.session_lifetime_ms = getattr(answer, "session_lifetime", 0)
        return answer

    def ask(self, api: int, version: int, **fields: Any) -> Any:
        frame = request_header(api, version, 1, "tokens")
        frame += encode_request(api, version, Struct(**fields))
        response = self._raw.ask(frame)
        return decode_response(api, version, response, 5 if flexible(api, version) else 4)

    def close(self) -> None:
        self._raw.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


CREATE, RENEW, EXPIRE, DESCRIBE = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
NEWEST = {CREATE: 3, RENEW: 2, EXPIRE: 2, DESCRIBE: 3}


def principals(*names: str) -> list[Struct]:
    """From `User:alice`."""
    pairs = (name.split(":") for name in names)
    return [Struct(principal_type=kind, principal_name=name) for kind, name in pairs]
