"""ACLs: who may do what with which resource, under Apache Kafka's names and numbers.

Principals are text here (`User:alice`), as in the records and requests that carry them.
"""

from typing import Final, NamedTuple, TypeVar

from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType

WILDCARD: Final = "*"  # any host; as the name of a literal pattern, any resource
ANY_USER: Final = "User:*"  # the only principal that matches others
CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of type CLUSTER


class Acl(NamedTuple):
    """One entry. A tuple, because its hash is computed for every change of 100,000 of them."""

    resource_type: AclResource
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        """As Kafka's authorizer log has it."""
        return (
            f"StandardAcl[resourceType={self.resource_type.name}, "
            f"resourceName={self.resource_name}, patternType={self.pattern_type.name}, "
            f"principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name}]"
        )


class AclFilter(NamedTuple):
    """Selects ACLs for DescribeAcls and DeleteAcls; None and ANY match everything."""

    resource_type: AclResource
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (AclResource.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            return self.pattern_type in (PatternType.ANY, acl.pattern_type) and (
                self.resource_name in (None, acl.resource_name)
            )
        if self.resource_name is None:
            return True
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


E = TypeVar("E", AclResource, PatternType, AclOperation, AclPermission)


def from_code(kind: type[E], code: int) -> E:
    """The value with that number; UNKNOWN for numbers that this version does not know."""
    try:
        return kind(code)
    except ValueError:
        return kind.UNKNOWN


# The operations on a resource of each type, as AlterAcls and `kafka-acls` know it.
SUPPORTED_OPERATIONS: Final[dict[AclResource, tuple[AclOperation, ...]]] = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    AclResource.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    AclResource.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResource.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


def operations_bits(operations: "tuple[AclOperation, ...] | list[AclOperation]") -> int:
    """A bit per operation, as `*_authorized_operations` has them."""
    return sum(1 << operation for operation in operations)
