"""Rules between the fields of a KafkaUser's spec, for the API server (CEL) and for parse.py."""

from __future__ import annotations

import re

from odradek_api.base import Resource, Rule
from odradek_api.kafka_user.spec import CLUSTER_NAME, PLAIN_NAME, SCRAM_TYPES, KafkaUserSpec

# Any new value of this annotation: a new password, or a new certificate.
ROTATE_ANNOTATION = "odradek.dev/rotate"
COMMON_NAME_MAX = 64  # of X.520


def user_name(user: Resource[KafkaUserSpec]) -> str:
    """The user's name in Kafka: in SCRAM, in its certificate and in its principal."""
    return user.spec.name or user.name


def user_cluster(user: Resource[KafkaUserSpec]) -> str:
    """ "namespace/name" of the KafkaCluster."""
    return user.spec.cluster.key(user.namespace)


USER_RULES = (
    Rule(
        "self.cluster == oldSelf.cluster",
        "a user cannot move to another cluster: create a new KafkaUser there",
        "cluster",
        lambda new, old: old is None or new.cluster == old.cluster,
    ),
    Rule(
        "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
        "a user cannot be renamed: create a new KafkaUser",
        "name",
        lambda new, old: old is None or new.name == old.name,
    ),
    Rule(
        "self.authentication.type == 'external' || !has(self.name) || "
        f"self.name.matches('{PLAIN_NAME}')",
        "may contain letters, digits, '.', '_' and '-'; other characters only with type external",
        "name",
        lambda new, _: (
            new.authentication.type == "external"
            or new.name is None
            or re.match(PLAIN_NAME, new.name) is not None
        ),
    ),
    Rule(
        "!has(self.authentication.passwordFrom) || self.authentication.type in "
        f"[{', '.join(repr(one) for one in SCRAM_TYPES)}]",
        "only users of scram-sha-512 and scram-sha-256 have a password",
        "authentication.passwordFrom",
        lambda new, _: (
            new.authentication.password_from is None or new.authentication.type in SCRAM_TYPES
        ),
    ),
    Rule(
        "self.authentication.type != 'mtls' || !has(self.name) || "
        f"size(self.name) <= {COMMON_NAME_MAX}",
        f"the common name of a certificate has at most {COMMON_NAME_MAX} characters",
        "name",
        lambda new, _: new.authentication.type != "mtls" or len(new.name or "") <= COMMON_NAME_MAX,
    ),
    Rule(
        "self.acls.all(acl, acl.resource.type == 'cluster' ? (!has(acl.resource.name) || "
        f"acl.resource.name == '{CLUSTER_NAME}') && acl.resource.pattern == 'literal' : "
        "has(acl.resource.name))",
        f"resource.name is required, except for type cluster, whose only name is {CLUSTER_NAME}",
        "acls",
        lambda new, _: all(_named(acl.resource) for acl in new.acls),
    ),
    Rule(
        "self.acls.all(acl, acl.resource.pattern == 'literal' || !has(acl.resource.name) || "
        "acl.resource.name != '*')",
        "resource.name * means all resources: use it with pattern literal",
        "acls",
        lambda new, _: all(
            acl.resource.pattern == "literal" or acl.resource.name != "*" for acl in new.acls
        ),
    ),
)


def _named(resource: object) -> bool:
    kind, name, pattern = (getattr(resource, field) for field in ("type", "name", "pattern"))
    if kind == "cluster":
        return name in (None, CLUSTER_NAME) and pattern == "literal"
    return name is not None
