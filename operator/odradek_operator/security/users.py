"""KafkaUsers: their desired state in Kafka, and the actions that lead there. Does no I/O.

    wanted = build_user(resource)
    plan = plan_user(wanted, credentials, observed)      # empty: nothing to do

Everything that belongs to a managed user is held exactly: its ACLs are those whose principal is
User:<name>, its quotas those of entities with this user, its credentials those of SCRAM with this
name. What belongs to another principal is never part of a plan.

A broker does not return a password, only the number of PBKDF2's iterations. So the operator chooses
a number at random with each password, keeps it with the password in the Secret, and never uses the
ones that people use: a different number in Kafka means that the password there is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_user.rules import ROTATE_ANNOTATION, user_name
from odradek_api.kafka_user.spec import CLUSTER_NAME, SCRAM_TYPES, Acl, KafkaUserSpec, Quotas
from odradek_operator.reason import Reason
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)

User = Resource[KafkaUserSpec]
Entity = tuple[tuple[str, str | None], ...]  # (("client-id", "x"), ("user", "alice")), sorted

MECHANISMS = {"scram-sha-256": 1, "scram-sha-512": 2}  # Kafka's numbers
MECHANISM_NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ITERATIONS = range(4097, 8192)  # without 4096 and 8192, the defaults of tools
OPERATIONS = {
    "all": AclOperation.ALL,
    "read": AclOperation.READ,
    "write": AclOperation.WRITE,
    "create": AclOperation.CREATE,
    "delete": AclOperation.DELETE,
    "alter": AclOperation.ALTER,
    "describe": AclOperation.DESCRIBE,
    "clusterAction": AclOperation.CLUSTER_ACTION,
    "describeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "alterConfigs": AclOperation.ALTER_CONFIGS,
    "idempotentWrite": AclOperation.IDEMPOTENT_WRITE,
    "createTokens": AclOperation.CREATE_TOKENS,
    "describeTokens": AclOperation.DESCRIBE_TOKENS,
    "twoPhaseCommit": AclOperation.TWO_PHASE_COMMIT,
}
RESOURCES = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "cluster": AclResource.CLUSTER,
    "transactionalId": AclResource.TRANSACTIONAL_ID,
    "delegationToken": AclResource.DELEGATION_TOKEN,
    "user": AclResource.USER,
}
PATTERNS = {"literal": PatternType.LITERAL, "prefix": PatternType.PREFIXED}


# -- desired and observed --------------------------------------------------------------------------


@dataclass(frozen=True)
class DesiredUser:
    owner: str  # "namespace/name" of the KafkaUser
    name: str  # in Kafka
    secret: str  # "namespace/name"
    authentication: str = "external"
    acls: frozenset[AclEntry] = frozenset()
    quotas: Mapping[str, float] = field(default_factory=dict)
    rotation: str = ""  # the value of the annotation that asks for new credentials
    keys: tuple[str, ...] = ()
    listener: str | None = None
    password_from: tuple[str, str] | None = None  # "namespace/name" of a Secret, and its key
    previous_secret: str = ""  # where the credentials were until now, if the spec has changed
    delete: bool = False

    @property
    def principal(self) -> str:
        return f"User:{self.name}"

    @property
    def mechanism(self) -> int | None:
        return MECHANISMS.get(self.authentication)


@dataclass(frozen=True)
class ObservedUsers:
    """The state of all users of a cluster in Kafka."""

    scram: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # mechanism → iterations
    acls: frozenset[AclEntry] | None = frozenset()  # None: the cluster has no authorizer
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)


def build_user(user: User) -> DesiredUser:
    spec, name = user.spec, user_name(user)
    source = spec.authentication.password_from
    return DesiredUser(
        owner=user.key,
        name=name,
        secret=f"{spec.secret.namespace or user.namespace}/{spec.secret.name or user.name}",
        authentication=spec.authentication.type,
        acls=frozenset(entry for acl in spec.acls for entry in acl_entries(name, acl)),
        quotas=quota_values(spec.quotas),
        rotation=user.annotations.get(ROTATE_ANNOTATION, ""),
        keys=tuple(spec.secret.keys),
        listener=spec.listener,
        password_from=(f"{user.namespace}/{source.name}", source.key) if source else None,
        delete=user.deleting,
    )


def acl_entries(name: str, acl: Acl) -> Iterable[AclEntry]:
    """One entry per operation."""
    resource = acl.resource
    for operation in acl.operations:
        yield AclEntry(
            RESOURCES[resource.type],
            CLUSTER_NAME if resource.type == "cluster" else resource.name or "",
            PATTERNS[resource.pattern],
            f"User:{name}",
            acl.host,
            OPERATIONS[operation],
            AclPermission.ALLOW if acl.permission == "allow" else AclPermission.DENY,
        )


def quota_values(quotas: Quotas) -> dict[str, float]:
    """The limits with Kafka's names."""
    return {
        name: value
        for name in quotas.__struct_fields__
        if (value := getattr(quotas, name)) is not None
    }


def not_accepted(cluster: Resource[KafkaClusterSpec], user: User) -> str:
    """Why the cluster does not accept this KafkaUser; empty if it does."""
    allowed = cluster.spec.user_namespaces
    listed = f"is not in spec.userNamespaces of KafkaCluster {cluster.key}"
    for_secret = user.spec.secret.namespace or user.namespace
    if "*" in allowed:
        return ""
    if user.namespace not in (cluster.namespace, *allowed):
        return f"namespace {user.namespace} {listed}"
    if for_secret not in (user.namespace, *allowed):
        return f"spec.secret.namespace {for_secret} {listed}"
    return ""


def conflicts(
    users: Iterable[DesiredUser], managed: Mapping[str, str], reserved: frozenset[str]
) -> dict[str, str]:
    """KafkaUser → why it must not touch its principal: another one manages it.

    A KafkaUser that is deleted and does not manage its principal has nothing to remove.

    `managed`: principal → the KafkaUser that manages it already. `reserved` are the principals of
    the operator and the brokers.
    """
    refused: dict[str, str] = {}
    claimed: dict[str, str] = {}
    for user in sorted(users, key=lambda one: one.owner):
        holder = managed.get(user.principal)
        if user.principal in reserved:
            refused[user.owner] = f"{user.principal} is reserved for the brokers and the operator"
            continue
        if holder is None and not user.delete:
            holder = claimed.setdefault(user.principal, user.owner)
        if holder != user.owner:
            refused[user.owner] = f"KafkaUser {holder} manages {user.principal} already"
    return refused


# -- actions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetPassword:
    user: str
    mechanism: int
    iterations: int
    password: str = field(repr=False)
    reason: Reason


@dataclass(frozen=True, slots=True)
class DeleteCredentials:
    user: str
    mechanisms: tuple[int, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class AddAcls:
    entries: tuple[AclEntry, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class RemoveAcls:
    entries: tuple[AclEntry, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class AlterQuotas:
    entity: Entity
    changes: Mapping[str, float | None]  # None removes a limit
    reason: Reason


UserAction: TypeAlias = SetPassword | DeleteCredentials | AddAcls | RemoveAcls | AlterQuotas


def plan_user(
    user: DesiredUser, password: tuple[str, int] | None, observed: ObservedUsers
) -> list[UserAction]:
    """`password`: with its iterations, as the Secret has it; None if there is none (yet).

    First what the user needs, then what it must no longer have. A user that is deleted first loses
    its credentials, so that it cannot log in again while the rest is removed.
    """
    return [
        *_scram(user, password, observed),
        *_acls(user, observed),
        *_quotas(user, observed),
    ]


def _scram(
    user: DesiredUser, password: tuple[str, int] | None, observed: ObservedUsers
) -> Iterable[UserAction]:
    if user.authentication == "external":
        return  # its credentials are managed elsewhere
    wanted = None if user.delete else user.mechanism
    found = observed.scram.get(user.name, {})
    if wanted is not None and password is not None and found.get(wanted) != password[1]:
        name = MECHANISM_NAMES[wanted]
        if wanted in found:
            reason = Reason("PasswordChanged", f"the {name} password of {user.principal} differs")
        else:
            reason = Reason("UserCreated", f"{user.principal} has no {name} password")
        yield SetPassword(user.name, wanted, password[1], password[0], reason)
    stray = tuple(sorted(mechanism for mechanism in found if mechanism != wanted))
    if stray:
        names = " and ".join(MECHANISM_NAMES.get(one, str(one)) for one in stray)
        yield DeleteCredentials(
            user.name, stray, _removal(user, f"the {names} password of {user.principal}")
        )


def _acls(user: DesiredUser, observed: ObservedUsers) -> Iterable[UserAction]:
    if observed.acls is None:
        return
    found = {entry for entry in observed.acls if entry.principal == user.principal}
    wanted = frozenset() if user.delete else user.acls
    if missing := tuple(sorted(wanted - found)):
        reason = Reason("AclsMissing", f"{user.principal} lacks {described(missing)}")
        yield AddAcls(missing, reason)
    if stray := tuple(sorted(found - wanted)):
        yield RemoveAcls(stray, _removal(user, f"{described(stray)} of {user.principal}"))


def _quotas(user: DesiredUser, observed: ObservedUsers) -> Iterable[UserAction]:
    own: Entity = (("user", user.name),)
    wanted = {} if user.delete else user.quotas
    entities: dict[Entity, Mapping[str, float]] = {own: {}}
    entities |= {e: v for e, v in observed.quotas.items() if ("user", user.name) in e}
    for entity, found in sorted(entities.items(), key=lambda one: str(one[0])):
        target = wanted if entity == own else {}
        changes: dict[str, float | None] = {n: v for n, v in target.items() if found.get(n) != v}
        changes |= {name: None for name in found if name not in target}
        if changes:
            what = ", ".join(f"{n}={v:g}" if v is not None else f"no {n}"
                             for n, v in sorted(changes.items()))  # fmt: skip
            about = " ".join(f"{kind} {name}" for kind, name in entity)
            yield AlterQuotas(entity, changes, Reason("QuotasDiffer", f"{about}: {what}"))


def _removal(user: DesiredUser, what: str) -> Reason:
    if user.delete:
        return Reason("UserDeleted", f"KafkaUser {user.owner} is deleted, and with it {what}")
    return Reason("NotDeclared", f"KafkaUser {user.owner} does not declare {what}")


NAMED_MAX = 3  # ACLs in a sentence


def described(entries: tuple[AclEntry, ...]) -> str:
    """ "ALLOW READ on topic orders"; of many the first ones."""
    shown = [_described(entry) for entry in entries[:NAMED_MAX]]
    more = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {more} more ACLs" if more else "")


def _described(entry: AclEntry) -> str:
    prefix = " names that begin with" if entry.pattern is PatternType.PREFIXED else ""
    host = "" if entry.host == "*" else f" from {entry.host}"
    kind = entry.kind.name.lower().replace("_", " ")
    return f"{entry.permission.name} {entry.operation.name} on {kind}{prefix} {entry.name}{host}"


def new_iterations(avoid: Iterable[int], below: Callable[[int], int]) -> int:
    """A number that differs from those in use; `below(n)` is a random number from 0 to n - 1."""
    taken = set(avoid)
    free = [number for number in ITERATIONS if number not in taken]
    return free[below(len(free))]


def is_scram(user: DesiredUser) -> bool:
    return user.authentication in SCRAM_TYPES
