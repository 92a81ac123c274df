"""Whether an operation is allowed on at least one resource of a type: Kafka's
`authorizeByResourceType`, which lets a producer without a cluster-wide right be idempotent.

It errs to the strict side in the same way: ALLOW must name the operation or ALL (nothing is
implied), and one DENY of `*` refuses everything.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek_broker.model.acl import ANY_USER, WILDCARD, Acl
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType

if TYPE_CHECKING:
    from odradek_broker.security.authorizer import Client


def any_resource_allowed(
    acls: Iterable[Acl], client: "Client", operation: AclOperation, resource_type: AclResource
) -> bool:
    principals = (str(client.principal), ANY_USER)
    allowed: list[Acl] = []
    denied: set[tuple[PatternType, str]] = set()
    for acl in acls:
        if (
            acl.resource_type is not resource_type
            or acl.principal not in principals
            or acl.host not in (client.host, WILDCARD)
            or acl.operation not in (operation, AclOperation.ALL)
        ):
            continue
        if acl.permission is AclPermission.DENY:
            denied.add((acl.pattern_type, acl.resource_name))
        else:
            allowed.append(acl)
    if (PatternType.LITERAL, WILDCARD) in denied:
        return False
    return any(_outlives(acl, denied) for acl in allowed)


def _outlives(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether no DENY covers the whole pattern of this ALLOW."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return True
        if (PatternType.LITERAL, name) in denied:
            return False
    prefixes = (name[:length] for length in range(1, len(name) + 1))
    return not any((PatternType.PREFIXED, prefix) in denied for prefix in prefixes)
