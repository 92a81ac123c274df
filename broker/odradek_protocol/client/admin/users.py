"""SCRAM users: which exist, set and delete their credentials.

The password never leaves this machine: the caller sends a key that PBKDF2 derives from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Controller
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


@dataclass(frozen=True, slots=True)
class SaltedPassword:
    """The credential that is sent for a new password; repr() hides it."""

    mechanism: int  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int
    salt: bytes = field(repr=False)
    salted: bytes = field(repr=False)


def list_users(client: KafkaClient) -> dict[str, dict[int, int]]:
    """User → mechanism → iterations."""
    answer = client.call(AnyBroker(), ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Struct(users=None))
    raise_error_in(answer)
    return {
        one.user: {info.mechanism: info.iterations for info in one.credential_infos}
        for one in answer.results
    }


def set_password(client: KafkaClient, user: str, password: SaltedPassword) -> None:
    upsertion = Struct(
        name=user,
        mechanism=password.mechanism,
        iterations=password.iterations,
        salt=password.salt,
        salted_password=password.salted,
    )
    _alter(client, Struct(deletions=[], upsertions=[upsertion]))


def delete_credentials(client: KafkaClient, user: str, mechanisms: Iterable[int]) -> None:
    """One request each: a broker refuses a request that names a user twice."""
    for mechanism in mechanisms:
        deletion = Struct(name=user, mechanism=mechanism)
        _alter(client, Struct(deletions=[deletion], upsertions=[]))


def _alter(client: KafkaClient, request: Struct) -> None:
    answer = client.call(Controller(), ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    for one in answer.results:
        raise_error_in(one)
