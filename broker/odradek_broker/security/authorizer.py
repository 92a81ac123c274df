"""Decides whether a principal may do an operation on a resource: Kafka's StandardAuthorizer.

Does no I/O: the ACLs come from the metadata image, through `apply`. The rules:

1. `super.users` may do everything.
2. A DENY entry that matches decides, then an ALLOW entry. An entry matches by resource (literal
   name, prefix, or `*`), principal (its own or `User:*`), host (its own or `*`) and operation (its
   own or ALL). ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, ALLOW of ALTER_CONFIGS
   implies DESCRIBE_CONFIGS; DENY implies nothing.
3. Without a match: `allow.everyone.if.no.acl.found` decides if no entry at all names the resource,
   otherwise it is denied.

Entries are found by dictionary: (type, name) for literal ones, (type, prefix) for prefixed ones,
one look-up per length of a prefix that exists; inside, by principal. So 100,000 entries cost a
check about what 10 do. Decisions are remembered for each (principal, host, operation, type) by
name, until an ACL changes: on the hot path a check is one look-up, because connections keep the
decisions about their client (`Exchange.topic_decisions`) as long as `version` stays the same.

Before the first metadata image only super users are allowed, because the ACLs are unknown.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.model.acl import ANY_USER, SUPPORTED_OPERATIONS, WILDCARD, Acl, operations_bits
from odradek_broker.model.hosts import canonical_host
from odradek_broker.model.principal import Principal
from odradek_broker.security.resource_types import any_resource_allowed
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType

logger = logging.getLogger("kafka.authorizer.logger")  # the name under which Kafka's users know it

# Remembered decisions: at most this many (principal, host, operation, type), and names in all of
# them. A client that invents principals or names must not fill the memory; past the limit all are
# forgotten. Longer names than topics can have are not remembered: ids of groups may have 32 KB.
SESSIONS_MAX: Final = 10_000
NAMES_MAX: Final = 500_000  # some 100 bytes each, and the names that clients invented
NAME_LENGTH_MAX: Final = 249
# Log lines about denials for one request: a line costs as much as ten decisions, and a request may
# name 100,000 resources.
DENIALS_LOGGED_MAX: Final = 100

IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
}
_NOTHING: Final[frozenset[AclOperation]] = frozenset()


class AccessDecision(NamedTuple):
    """`rule` says why, in the words of Kafka's authorizer log."""

    allowed: bool
    rule: str


SUPER_USER: Final = AccessDecision(allowed=True, rule="SuperUser")
DEFAULT_ALLOW: Final = AccessDecision(allowed=True, rule="DefaultAllow")
DEFAULT_DENY: Final = AccessDecision(allowed=False, rule="DefaultDeny")
NOT_READY: Final = AccessDecision(allowed=False, rule="NotLoaded")


class Client(NamedTuple):
    """The sender of a request: its principal and its address."""

    principal: Principal
    host: str


class _Pattern(NamedTuple):
    type: AclResource
    name: str
    prefixed: bool


class Authorizer:
    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._no_acl = DEFAULT_ALLOW if allow_if_no_acl_found else DEFAULT_DENY
        self._entries: dict[_Pattern, dict[str, list[Acl]]] = {}
        self._prefix_lengths: dict[AclResource, dict[int, int]] = {}  # length → patterns
        self._acls: dict[UUID, Acl] = {}
        self._by_principal: dict[str, dict[UUID, Acl]] = {}
        self._sessions: dict[tuple[Client, AclOperation, AclResource], Decisions] = {}
        self._by_type: dict[tuple[Client, AclOperation, AclResource], bool] = {}
        self._names = 0  # remembered, in all sessions
        self._by_acl: dict[Acl, AccessDecision] = {}  # one for all names that an entry decides
        self.is_ready = False
        self.version = 0  # decisions of another version are stale

    # -- the ACLs ---------------------------------------------------------------------------

    def load(self, image: MetadataImage) -> None:
        self._change(dict.fromkeys(self._acls) | dict(image.acls))
        self.is_ready = self.is_ready or image.offset >= 0
        self._forget_decisions()

    def apply(self, delta: MetadataDelta) -> None:
        """Called with every change of the metadata, before a request can see it."""
        if delta.changed_acls or not self.is_ready:
            self._change(delta.changed_acls)
            self.is_ready = True
            self._forget_decisions()

    def _change(self, changes: Mapping[UUID, Acl | None]) -> None:
        for acl_id, acl in changes.items():
            old = self._acls.pop(acl_id, None)
            if old is not None:
                self._remove(acl_id, old)
            if acl is not None:
                host = canonical_host(acl.host)
                known = acl if host == acl.host else acl._replace(host=host)
                self._acls[acl_id] = known
                self._add(acl_id, known)

    def _add(self, acl_id: UUID, acl: Acl) -> None:
        pattern = _pattern_of(acl)
        entries = self._entries.get(pattern)
        if entries is None:
            entries = self._entries[pattern] = {}
            if pattern.prefixed:
                lengths = self._prefix_lengths.setdefault(pattern.type, {})
                lengths[len(pattern.name)] = lengths.get(len(pattern.name), 0) + 1
        entries.setdefault(acl.principal, []).append(acl)
        self._by_principal.setdefault(acl.principal, {})[acl_id] = acl

    def _remove(self, acl_id: UUID, acl: Acl) -> None:
        of_principal = self._by_principal[acl.principal]
        del of_principal[acl_id]
        if not of_principal:
            del self._by_principal[acl.principal]
        pattern = _pattern_of(acl)
        entries = self._entries[pattern]
        entries[acl.principal].remove(acl)
        if not entries[acl.principal]:
            del entries[acl.principal]
        if entries:
            return
        del self._entries[pattern]
        if pattern.prefixed:
            lengths = self._prefix_lengths[pattern.type]
            lengths[len(pattern.name)] -= 1
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]

    def _forget_decisions(self) -> None:
        self.version += 1
        for decisions in self._sessions.values():  # connections still refer to them
            decisions.clear()
        self._sessions.clear()
        self._by_type.clear()
        self._names = 0
        self._by_acl.clear()

    # -- decisions ----------------------------------------------------------------------------

    def decisions(
        self, client: Client, operation: AclOperation, resource_type: AclResource
    ) -> "Decisions":
        """Valid until the next ACL changes: do not keep them across an await."""
        key = (client, operation, resource_type)
        known = self._sessions.get(key)
        if known is None:
            if len(self._sessions) >= SESSIONS_MAX:
                self._forget_decisions()
            known = self._sessions[key] = Decisions(self, client, operation, resource_type)
        return known

    def remembers_another(self) -> None:
        """A decision is going to be remembered."""
        if self._names >= NAMES_MAX:
            self._forget_decisions()
        self._names += 1

    def decide(
        self, client: Client, operation: AclOperation, resource_type: AclResource, name: str
    ) -> AccessDecision:
        principal = str(client.principal)
        if principal in self._super_users:
            return SUPER_USER
        if not self.is_ready:
            return NOT_READY
        allowed_by: Acl | None = None
        patterns = self._patterns_of(resource_type, name)
        implied_by = IMPLIED_BY.get(operation, _NOTHING)
        for entries in patterns:
            for asked in (principal, ANY_USER):
                for acl in entries.get(asked, ()):
                    if acl.host not in (WILDCARD, client.host):
                        continue
                    if acl.permission is AclPermission.DENY:
                        if acl.operation in (operation, AclOperation.ALL):
                            return self._decided_by(acl)
                    elif (
                        acl.operation in (operation, AclOperation.ALL)
                        or acl.operation in implied_by
                    ):
                        allowed_by = acl
        if allowed_by is not None:
            return self._decided_by(allowed_by)
        return DEFAULT_DENY if patterns else self._no_acl

    def _decided_by(self, acl: Acl) -> AccessDecision:
        known = self._by_acl.get(acl)
        if known is None:
            allowed = acl.permission is AclPermission.ALLOW
            known = self._by_acl[acl] = AccessDecision(allowed, f"MatchingAcl(acl={acl})")
        return known

    def _patterns_of(self, type_: AclResource, name: str) -> list[dict[str, list[Acl]]]:
        """The entries of every pattern that applies to the resource."""
        entries = self._entries
        candidates = [_Pattern(type_, name, False), _Pattern(type_, WILDCARD, False)]
        candidates += [
            _Pattern(type_, name[:length], True)
            for length in self._prefix_lengths.get(type_, ())
            if length <= len(name)
        ]
        return [found for pattern in candidates if (found := entries.get(pattern)) is not None]

    def allowed_for_any(
        self, client: Client, operation: AclOperation, resource_type: AclResource
    ) -> bool:
        """Whether there may be one resource of the type with which the client may do this."""
        key = (client, operation, resource_type)
        known = self._by_type.get(key)
        if known is None:
            if len(self._by_type) >= SESSIONS_MAX:
                self._by_type.clear()
            # A name that no ACL has: super users, wildcards, and the default for all.
            known = self.decide(client, operation, resource_type, "hardcode").allowed or (
                self.is_ready
                and any_resource_allowed(self._of(client), client, operation, resource_type)
            )
            self._by_type[key] = known
        return known

    def _of(self, client: Client) -> Iterable[Acl]:
        for principal in (str(client.principal), ANY_USER):
            yield from self._by_principal.get(principal, {}).values()

    def authorized_operations(self, client: Client, resource_type: AclResource, name: str) -> int:
        """The bits for `*_authorized_operations` of a response."""
        return operations_bits(
            [
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if self.decide(client, operation, resource_type, name).allowed
            ]
        )


class Decisions:
    """Decisions for one client and operation on resources of one type, by resource name."""

    __slots__ = ("_authorizer", "_known", "client", "operation", "resource_type", "version")

    def __init__(
        self,
        authorizer: Authorizer,
        client: Client,
        operation: AclOperation,
        resource_type: AclResource,
    ) -> None:
        self._authorizer = authorizer
        self.version = authorizer.version
        self._known: dict[str, AccessDecision] = {}
        self.client = client
        self.operation = operation
        self.resource_type = resource_type

    def about(self, name: str) -> AccessDecision:
        known = self._known.get(name)
        if known is None:
            known = self._authorizer.decide(self.client, self.operation, self.resource_type, name)
            if len(name) <= NAME_LENGTH_MAX:
                self._authorizer.remembers_another()
                self._known[name] = known
        return known

    def clear(self) -> None:
        self._known.clear()

    def log(self, name: str, decision: AccessDecision, request: str, references: int = 1) -> None:
        """Denials at INFO, grants at DEBUG, in the words of Kafka's authorizer."""
        level = logging.DEBUG if decision.allowed else logging.INFO
        if logger.isEnabledFor(level):
            resource = self.resource_type.name.title().replace("_", "")
            logger.log(
                level,
                "Principal = %s is %s operation = %s from host = %s on resource = "
                "%s:LITERAL:%s for request = %s with resourceRefCount = %d based on rule %s",
                self.client.principal,
                "Allowed" if decision.allowed else "Denied",
                self.operation.name,
                self.client.host,
                resource,
                name,
                request,
                references,
                decision.rule,
            )


class RequestLog:
    """The authorizer's log of one request: of many denials, the first DENIALS_LOGGED_MAX."""

    __slots__ = ("_denials", "_request")

    def __init__(self, request: str) -> None:
        self._request = request
        self._denials = 0

    def add(self, decisions: Decisions, name: str, decision: AccessDecision) -> None:
        if not decision.allowed:
            self._denials += 1
            if self._denials > DENIALS_LOGGED_MAX:
                if self._denials == DENIALS_LOGGED_MAX + 1:
                    logger.info(
                        "Principal = %s from host = %s: further denials for this %s request are "
                        "not logged",
                        decisions.client.principal,
                        decisions.client.host,
                        self._request,
                    )
                return
        decisions.log(name, decision, self._request)


def _pattern_of(acl: Acl) -> _Pattern:
    return _Pattern(acl.resource_type, acl.resource_name, acl.pattern_type is PatternType.PREFIXED)
