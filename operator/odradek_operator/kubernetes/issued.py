"""Certificates of cert-manager for the listeners of a cluster: requested here, issued by it.

    objects = certificate_objects(resource, wanted)     # one Certificate per broker
    request(client, resource, wanted)                   # applies those that differ

cert-manager writes each one into a Secret of the same name, and renews it; security/given.py reads
it. A Certificate belongs to the KafkaCluster and is deleted with it. Its Secret is cert-manager's.
"""

from __future__ import annotations

from typing import Any

import httpx2
from lightkube import Client, codecs
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource

from odradek_api.base import API_VERSION, Resource, owner_reference
from odradek_api.kafka_cluster.security import issued_secret
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.writer import contains
from odradek_operator.security.certificates import WantedCertificates

GROUP, VERSION = "cert-manager.io", "v1"
Certificate = create_namespaced_resource(GROUP, VERSION, "Certificate", "certificates")
NOT_FOUND = 404
Object = dict[str, Any]


class NoCertManagerError(Exception):
    """The API server has no cert-manager; the message names the remedy."""


def certificate_objects(
    resource: Resource[KafkaClusterSpec], wanted: WantedCertificates
) -> list[Object]:
    issuer = wanted.policy.issuer_ref
    assert issuer is not None
    owner = owner_reference(API_VERSION, "KafkaCluster", resource.name, resource.uid)
    made = []
    for node, subject in sorted(wanted.brokers.items()):
        name = issued_secret(resource.name, node)
        spec: Object = {
            "secretName": name,
            "duration": f"{24 * wanted.policy.validity_days}h0m0s",
            "renewBefore": f"{max(1, 24 * wanted.policy.renew_before_days)}h0m0s",
            "usages": ["server auth"],
            # Apache Kafka reads private keys in PKCS8 only.
            "privateKey": {
                "algorithm": "ECDSA",
                "size": 256,
                "encoding": "PKCS8",
                "rotationPolicy": "Always",
            },
            "dnsNames": list(subject.dns),
            "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": issuer.group},
        }
        if subject.ips:
            spec["ipAddresses"] = list(subject.ips)
        made.append(
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "Certificate",
                "metadata": {
                    "name": name,
                    "namespace": resource.namespace,
                    "labels": names.labels(resource.name),
                    "ownerReferences": [owner],
                },
                "spec": spec,
            }
        )
    return made


def request(
    client: Client, resource: Resource[KafkaClusterSpec], wanted: WantedCertificates
) -> None:
    """Applies the Certificates that differ from the wanted ones. Raises NoCertManagerError."""
    for one in certificate_objects(resource, wanted):
        found = _get(client, one["metadata"]["name"], resource.namespace)
        if found is not None and contains(found.to_dict(), one):
            continue
        client.apply(codecs.from_dict(one), field_manager=names.FIELD_MANAGER, force=True)


def _get(client: Client, name: str, namespace: str) -> Any | None:
    try:
        return client.get(Certificate, name, namespace=namespace)
    except httpx2.HTTPStatusError as error:
        if error.response.status_code != NOT_FOUND:
            raise
        if isinstance(error, ApiError):
            return None
        # The API server answers with a plain page where it does not know the group.
        raise NoCertManagerError(
            f"spec.certificates.issuerRef: the API server does not know {GROUP}/{VERSION} "
            "Certificates: install cert-manager, or remove issuerRef"
        ) from None
