"""Delegation tokens (KIP-48): create, list, renew and expire them.

Brokers answer only on authenticated connections, and not to a client that used a token itself.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

USER = "User"
SERVERS_DEFAULT_MS = -1
AT_ONCE_MS = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Principals are text (`User:alice`), times milliseconds since 1970; repr() hides the HMAC."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """Of a login with SCRAM, whose user is the token's id."""
        return base64.b64encode(self.hmac).decode()


def create_token(
    client: KafkaClient,
    owner: str | None = None,
    renewers: Iterable[str] = (),
    max_lifetime_ms: int = SERVERS_DEFAULT_MS,
) -> DelegationToken:
    """For a user: None is the one that the client has logged in as."""
    allowed = [Struct(principal_type=USER, principal_name=name) for name in renewers]
    request = Struct(
        owner_principal_type=None if owner is None else USER,
        owner_principal_name=owner,
        renewers=allowed,
        max_lifetime=max_lifetime_ms,
    )
    answer = client.call(AnyBroker(), ApiKey.CREATE_DELEGATION_TOKEN, request)
    raise_error_in(answer)
    answer.renewers = allowed
    return _token(answer)


def list_tokens(client: KafkaClient, owners: Iterable[str] | None = None) -> list[DelegationToken]:
    """Those that the client may see, with their secrets; of all users if `owners` is not given."""
    asked = [Struct(principal_type=USER, principal_name=name) for name in owners or ()]
    answer = client.call(
        AnyBroker(), ApiKey.DESCRIBE_DELEGATION_TOKEN, Struct(owners=asked or None)
    )
    raise_error_in(answer)
    return sorted(map(_token, answer.tokens), key=lambda token: (token.owner, token.issued_ms))


def renew_token(client: KafkaClient, hmac: bytes, period_ms: int = SERVERS_DEFAULT_MS) -> int:
    """The new expiry."""
    request = Struct(hmac=hmac, renew_period=period_ms)
    answer = client.call(AnyBroker(), ApiKey.RENEW_DELEGATION_TOKEN, request)
    raise_error_in(answer)
    return int(answer.expiry_timestamp)


def expire_token(client: KafkaClient, hmac: bytes, period_ms: int = AT_ONCE_MS) -> int:
    """The new expiry."""
    request = Struct(hmac=hmac, expiry_time_period=period_ms)
    answer = client.call(AnyBroker(), ApiKey.EXPIRE_DELEGATION_TOKEN, request)
    raise_error_in(answer)
    return int(answer.expiry_timestamp)


def _token(found: Struct) -> DelegationToken:
    """Of an answer about a new token, or of an item of a list."""
    return DelegationToken(
        token_id=found.token_id,
        owner=f"{found.principal_type}:{found.principal_name}",
        requester=(
            f"{found.token_requester_principal_type}:{found.token_requester_principal_name}"
        ),
        renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in found.renewers),
        issued_ms=found.issue_timestamp,
        expires_ms=found.expiry_timestamp,
        max_ms=found.max_timestamp,
        hmac=bytes(found.hmac),
    )
