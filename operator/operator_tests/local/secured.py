"""Helpers of tests of a secured local cluster: users with rights, and clients that log in."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from odradek_api.kafka_cluster.security import CLUSTER_BUNDLE, trust_secret
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.client import ClientSettings, KafkaClient
from odradek_protocol.client.admin.acls import AclEntry, add_acls
from odradek_protocol.client.admin.users import SaltedPassword, set_password
from odradek_protocol.client.security import SecuritySettings
from operator_tests.local.local import KEY, Local

USER, PASSWORD = "alice", "alice-secret"
ITERATIONS = 4096


def as_operator(local: Local) -> KafkaClient:
    """A client with the operator's own identity."""
    cluster = local.runtime.clusters[KEY]
    route = cluster.platform.route()
    security = cluster.certificates.keeper.client_security()
    assert route.tls
    assert security is not None
    return KafkaClient(route.bootstrap, ClientSettings(security=security))


def add_user(local: Local, topic: str) -> None:
    """The user may write and read the topic, with a password by SCRAM-SHA-512."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, ITERATIONS)
    client = as_operator(local)
    try:
        set_password(client, USER, SaltedPassword(2, ITERATIONS, salt, salted))
        add_acls(
            client,
            [
                AclEntry(kind, name, PatternType.LITERAL, f"User:{USER}", "*", operation,
                         AclPermission.ALLOW)
                for kind, name, operation in (
                    (AclResource.TOPIC, topic, AclOperation.WRITE),
                    (AclResource.TOPIC, topic, AclOperation.READ),
                    (AclResource.TOPIC, topic, AclOperation.DESCRIBE),
                    (AclResource.GROUP, "final", AclOperation.READ),
                    (AclResource.CLUSTER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
                )
            ],
        )  # fmt: skip
    finally:
        client.close()


def trust_file(local: Local) -> Path:
    """The bundle that a client trusts, as it is now."""
    return local.runtime.clusters[KEY].certificates.secrets.path(
        trust_secret("main"), CLUSTER_BUNDLE
    )


def librdkafka(local: Local) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(trust_file(local)),
    }


def new_connection(local: Local, bundle: bytes) -> None:
    """A client that starts now with this bundle and describes the cluster; raises ClientError."""
    security = SecuritySettings.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": bundle.decode(),
        }
    )
    client = KafkaClient(local.bootstrap, ClientSettings(security=security, deadline_s=10))
    try:
        client.metadata()
    finally:
        client.close()
