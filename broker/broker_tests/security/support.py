"""ACLs for tests, and a model of the authorizer that is too simple to be wrong."""

from collections.abc import Iterable

from hypothesis import strategies as st

from odradek_broker.model.acl import Acl
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType

NAMES = ["a", "ab", "abc", "b", "*", "ba"]
HOSTS = ["127.0.0.1", "10.0.0.1"]
USERS = ["alice", "bob", "*"]
OPERATIONS = [op for op in AclOperation if op > AclOperation.ANY]


def allow(
    operation: AclOperation,
    resource_type: AclResource = AclResource.TOPIC,
    name: str = "a",
    principal: str = "User:alice",
    host: str = "*",
    *,
    prefixed: bool = False,
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(resource_type, name, pattern, principal, host, operation, AclPermission.ALLOW)


def deny(acl: Acl) -> Acl:
    return acl._replace(permission=AclPermission.DENY)


def acls() -> st.SearchStrategy[Acl]:
    return st.builds(
        Acl,
        st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
        st.sampled_from(NAMES),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.sampled_from([f"User:{user}" for user in USERS]),
        st.sampled_from([*HOSTS, "*"]),
        st.sampled_from(OPERATIONS),
        st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
    )


def applies(acl: Acl, resource_type: AclResource, name: str) -> bool:
    if acl.resource_type is not resource_type:
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def naive(
    entries: Iterable[Acl],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: AclResource,
    name: str,
    *,
    default: bool = False,
) -> bool:
    """Looks at every ACL."""
    of_resource = [acl for acl in entries if applies(acl, resource_type, name)]
    matching = [
        acl
        for acl in of_resource
        if acl.principal in (principal, "User:*") and acl.host in (host, "*")
    ]
    implied = {
        AclOperation.DESCRIBE: {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"},
        AclOperation.DESCRIBE_CONFIGS: {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    }.get(operation, {operation.name})
    for acl in matching:
        denies = acl.permission is AclPermission.DENY
        if denies and acl.operation in (operation, AclOperation.ALL):
            return False
    for acl in matching:
        allows = acl.permission is AclPermission.ALLOW
        if allows and (acl.operation is AclOperation.ALL or acl.operation.name in implied):
            return True
    return default and not of_resource
