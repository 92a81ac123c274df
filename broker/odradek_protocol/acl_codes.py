"""An ACL, and its numbers in requests and records: resources, patterns, operations, permissions.

UNKNOWN stands for a number of a newer version; clients never send it.
"""

from dataclasses import dataclass
from enum import IntEnum

# Enum hashes the name of a member, in Python; these are in the keys of every look-up, so they hash
# as the numbers they are.


class AclResource(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1  # in filters: literal and prefixed
    MATCH = 2  # in filters: every pattern that applies to the resource of that name
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, order=True)
class AclEntry:
    """Allows or denies a principal an operation; `name` is "*" for all resources of the kind."""

    kind: AclResource
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission
