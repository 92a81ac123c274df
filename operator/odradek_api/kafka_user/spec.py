"""The spec of a KafkaUser: how the user authenticates, what it may do, and its Secret.

apiVersion: odradek.dev/v1alpha1
kind: KafkaUser
metadata: {name: billing}
spec:
  cluster: {name: main}
  authentication: {type: scram-sha-512}
  acls:
    - resource: {type: topic, name: orders}
      operations: [read, describe]
    - resource: {type: group, name: billing-, pattern: prefix}
      operations: [read]
  quotas: {producerByteRate: 1048576}

Rules between fields are in rules.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import AS_SET, ClusterRef, DnsLabel, Spec

AuthenticationType = Literal["scram-sha-512", "scram-sha-256", "mtls", "external"]
ResourceType = Literal["topic", "group", "cluster", "transactionalId", "delegationToken", "user"]
Operation = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "clusterAction",
    "describeConfigs",
    "alterConfigs",
    "idempotentWrite",
    "createTokens",
    "describeTokens",
    "twoPhaseCommit",
]
SecretKey = Literal[
    "pkcs12",
    "client.properties",
    "librdkafka.conf",
    "sasl.jaas.config",
    "servicebinding",
]
SCRAM_TYPES = ("scram-sha-512", "scram-sha-256")
CLUSTER_NAME = "kafka-cluster"  # Kafka's name of the only resource of type cluster
ACLS_MAX = 500
SECRET_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
# A comma or an equals sign would be another attribute of a certificate's subject; Kafka's file
# formats need no escapes for the rest.
PLAIN_NAME = r"^[a-zA-Z0-9._-]+$"

SecretName = Annotated[str, Meta(pattern=SECRET_NAME, max_length=253)]
Rate = Annotated[float, Meta(ge=0.001)]  # an exclusive minimum is no part of a CRD


class PasswordFrom(Spec, frozen=True, kw_only=True):
    """A Secret that contains the password. It is in the namespace of the KafkaUser."""

    name: Annotated[SecretName, Meta(description="Name of the Secret.")]
    key: Annotated[
        str, Meta(min_length=1, description="Key of the password in the Secret. Default: password.")
    ] = "password"


class Authentication(Spec, frozen=True, kw_only=True):
    """How the user proves who it is."""

    type: Annotated[
        AuthenticationType,
        Meta(
            description="scram-sha-512 and scram-sha-256 log in with a password, mtls with a "
            "certificate that the cluster's CA of clients issues. With external the credentials "
            "are managed elsewhere, for example by an OIDC issuer; only ACLs and quotas are "
            "managed. Default: scram-sha-512."
        ),
    ] = "scram-sha-512"
    password_from: Annotated[
        PasswordFrom | None,
        Meta(
            description="For SCRAM: take the password from this Secret, and follow its changes. "
            "Default: the operator makes a password."
        ),
    ] = None


class ResourceOfAcl(Spec, frozen=True, kw_only=True):
    """The resource of an ACL."""

    type: Annotated[ResourceType, Meta(description="Type of the resource.")]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(
            description="Name of the resource, or * for all of this type, for example orders. "
            "Required, except for type cluster. Default: none.",
        ),
    ] = None
    pattern: Annotated[
        Literal["literal", "prefix"],
        Meta(
            description="literal: the resource of this name. prefix: all resources whose names "
            "begin with it. Default: literal."
        ),
    ] = "literal"


class Acl(Spec, frozen=True, kw_only=True):
    """Allows or denies operations on one resource."""

    resource: Annotated[ResourceOfAcl, Meta(description="What the operations apply to.")]
    operations: Annotated[
        list[Operation],
        Meta(
            min_length=1,
            max_length=14,
            description="Kafka's operations, for example [read, describe]. read and write imply "
            "describe.",
            extra_json_schema=AS_SET,
        ),
    ]
    permission: Annotated[
        Literal["allow", "deny"],
        Meta(description="deny wins over allow. Default: allow."),
    ] = "allow"
    host: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="IP address of the clients that this applies to, or * for all. Default: *.",
        ),
    ] = "*"


class Quotas(Spec, frozen=True, kw_only=True):
    """Limits of the user, on each broker."""

    producer_byte_rate: Annotated[
        Rate | None, Meta(description="Bytes per second that it may produce. Default: no limit.")
    ] = None
    consumer_byte_rate: Annotated[
        Rate | None, Meta(description="Bytes per second that it may fetch. Default: no limit.")
    ] = None
    request_percentage: Annotated[
        Rate | None,
        Meta(
            description="Percentage of the broker's request threads that it may use. Default: no "
            "limit."
        ),
    ] = None
    controller_mutation_rate: Annotated[
        Rate | None,
        Meta(description="Partitions per second that it may create or delete. Default: no limit."),
    ] = None


class SecretOut(Spec, frozen=True, kw_only=True):
    """The Secret with the user's credentials."""

    name: Annotated[
        SecretName | None,
        Meta(
            description="Name of the Secret. Default: metadata.name. An existing Secret that the "
            "operator did not make for this user is never overwritten."
        ),
    ] = None
    namespace: Annotated[
        DnsLabel | None,
        Meta(
            description="Namespace of the Secret. Default: the namespace of this resource. "
            "Another one must be listed in the KafkaCluster's spec.userNamespaces."
        ),
    ] = None
    keys: Annotated[
        list[SecretKey],
        Meta(
            max_length=5,
            description="What the Secret contains in addition to username, bootstrap.servers, "
            "password (SCRAM), user.crt and user.key (mtls) and ca.crt (TLS), all in PEM: pkcs12 "
            "(user.p12, ca.p12 and p12.password), client.properties (Java), librdkafka.conf, "
            "sasl.jaas.config, servicebinding (the keys of servicebinding.io). Default: "
            "client.properties, librdkafka.conf and sasl.jaas.config.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=lambda: ["client.properties", "librdkafka.conf", "sasl.jaas.config"])


class KafkaUserSpec(Spec, frozen=True, kw_only=True):
    """The desired state of the user."""

    cluster: Annotated[
        ClusterRef,
        Meta(
            description="The KafkaCluster of the user. In another namespace, that KafkaCluster "
            "must list the namespace of this resource in spec.userNamespaces. It cannot change."
        ),
    ]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        Meta(
            description="Name of the user in Kafka, whose principal is User:<name>. With type mtls "
            "it is the common name of the certificate. Default: metadata.name. It cannot change.",
        ),
    ] = None
    authentication: Annotated[
        Authentication,
        Meta(description="How the user proves who it is. Default: a password (SCRAM-SHA-512)."),
    ] = field(default_factory=Authentication)
    acls: Annotated[
        list[Acl],
        Meta(
            max_length=ACLS_MAX,
            description="What the user may do. These are all its ACLs: others of the same "
            "principal are removed. Default: none.",
        ),
    ] = field(default_factory=list)
    quotas: Annotated[
        Quotas,
        Meta(
            description="Limits of the user. These are all its limits: others of the same user "
            "are removed. Default: none."
        ),
    ] = field(default_factory=Quotas)
    listener: Annotated[
        DnsLabel | None,
        Meta(
            description="Name of the cluster's listener that the Secret's bootstrap addresses "
            "point to. Default: the first one that accepts the user's authentication."
        ),
    ] = None
    secret: Annotated[
        SecretOut,
        Meta(description="The Secret with the credentials. Default: one named metadata.name."),
    ] = field(default_factory=SecretOut)
