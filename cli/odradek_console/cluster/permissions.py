"""May this principal do that? The answer with the entry that decides it.

The decision is the broker's own (odradek_broker.security.authorizer), which `make acl-diff`
compares with Apache Kafka's; the entries are those that DescribeAcls answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.model.acl import SUPPORTED_OPERATIONS, Acl
from odradek_broker.model.principal import Principal
from odradek_broker.security.authorizer import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    SUPER_USER,
    Authorizer,
    Client,
)
from odradek_protocol.acl_codes import AclEntry, AclOperation, AclPermission, AclResource

ANY_HOST = "127.0.0.1"  # asked about where a person names no host


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    why: str


@dataclass(frozen=True)
class Rules:
    """Settings of the brokers; None: the user may not see them."""

    super_users: frozenset[str] | None
    allow_if_no_acl: bool | None


def ask(
    entries: Iterable[AclEntry],
    rules: Rules,
    principal: str,
    operation: AclOperation,
    resource: tuple[AclResource, str],
    host: str = ANY_HOST,
) -> Verdict:
    """`principal` is TYPE:NAME; ValueError if it is not."""
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise ValueError(f"principal {principal}: must be TYPE:NAME, for example User:alice")
    authorizer = Authorizer(
        rules.super_users or (), allow_if_no_acl_found=bool(rules.allow_if_no_acl)
    )
    delta = MetadataDelta(MetadataImage())
    delta.changed_acls = {
        UUID(int=number): Acl(e.kind, e.name, e.pattern, e.principal, e.host, e.operation,
                              e.permission)
        for number, e in enumerate(entries, 1)
    }  # fmt: skip
    authorizer.apply(delta)
    decision = authorizer.decide(Client(Principal(kind, name), host), operation, *resource)
    return Verdict(decision.allowed, _why(decision.rule, principal, rules))


def _why(rule: str, principal: str, rules: Rules) -> str:
    unsure = (
        " (super.users of the brokers is not visible to you)" if rules.super_users is None else ""
    )
    if rule == SUPER_USER.rule:
        return f"{principal} is in super.users of the brokers."
    if rule == DEFAULT_ALLOW.rule:
        return "No ACL names this resource, and allow.everyone.if.no.acl.found is true."
    if rule == DEFAULT_DENY.rule:
        return f"No ACL allows it, and what is not allowed is denied{unsure}."
    return rule


def sentence(entry: AclEntry) -> str:
    """User:alice may WRITE topic orders* from any host."""
    verb = "may" if entry.permission is AclPermission.ALLOW else "must not"
    star = "*" if entry.pattern.name == "PREFIXED" else ""
    host = "any host" if entry.host == "*" else entry.host
    kind = entry.kind.name.lower().replace("_", " ")
    name = f"all {kind}s" if entry.name == "*" else f"{kind} {entry.name}{star}"
    return f"{entry.principal} {verb} {entry.operation.name} {name} from {host}"


def operations_of(kind: AclResource) -> tuple[AclOperation, ...]:
    return SUPPORTED_OPERATIONS[kind]
