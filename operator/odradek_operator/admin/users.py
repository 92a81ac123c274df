"""Observes the users of a Kafka cluster, and carries out the actions of security/users.py.

The password of a user is never sent: brokers get a key that PBKDF2 derives from it.
"""

from __future__ import annotations

import secrets

from odradek_operator.security.users import (
    MECHANISM_NAMES,
    AddAcls,
    AlterQuotas,
    DeleteCredentials,
    ObservedUsers,
    RemoveAcls,
    SetPassword,
    UserAction,
)
from odradek_protocol.client import BrokerError, KafkaClient
from odradek_protocol.client.admin import acls, quotas, users
from odradek_protocol.client.admin.users import SaltedPassword
from odradek_protocol.security.scram import HASHES, salted_password

SALT_BYTES = 24
NO_AUTHORIZER = "SECURITY_DISABLED"
# The credential or entry is gone already: the same as done.
_DONE = frozenset({"RESOURCE_NOT_FOUND"})


def observe_users(client: KafkaClient) -> ObservedUsers:
    try:
        entries: frozenset[acls.AclEntry] | None = frozenset(
            acls.list_acls(client, acls.AclSelection())
        )
    except BrokerError as error:
        if error.name != NO_AUTHORIZER:
            raise
        entries = None
    return ObservedUsers(
        scram=users.list_users(client),
        acls=entries,
        quotas={
            tuple(sorted(entity.items())): values for entity, values in quotas.list_quotas(client)
        },
    )


def carry_out_user(client: KafkaClient, action: UserAction) -> None:
    """Idempotent; raises the broker's error."""
    match action:
        case SetPassword(user, mechanism, iterations, password):
            salt = secrets.token_bytes(SALT_BYTES)
            hashed = HASHES[MECHANISM_NAMES[mechanism]]
            salted = salted_password(hashed, password, salt, iterations)
            users.set_password(client, user, SaltedPassword(mechanism, iterations, salt, salted))
        case DeleteCredentials(user, mechanisms):
            for mechanism in mechanisms:
                try:
                    users.delete_credentials(client, user, [mechanism])
                except BrokerError as error:
                    if error.name not in _DONE:
                        raise
        case AddAcls(entries):
            acls.add_acls(client, entries)
        case RemoveAcls(entries):
            acls.remove_entries(client, entries)
        case AlterQuotas(entity, changes):
            quotas.alter_quotas(client, dict(entity), changes)
