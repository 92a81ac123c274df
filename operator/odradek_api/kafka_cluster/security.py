"""The part of a KafkaCluster's spec about certificates, and the names that follow from it.

Names of Secrets and principals are a contract with users and clients: operator/adr/0003.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from odradek_api.base import GROUP, NonEmpty, Spec

RENEW_ANNOTATION = f"{GROUP}/renew-certificates"  # any new value: renew brokers' and operator's
ROTATE_CA_ANNOTATION = f"{GROUP}/rotate-ca"  # any new value: replace both CAs

# Principals of certificates that the cluster CA signs. A user's certificate has no organization.
ORGANIZATION = GROUP
BROKER_NAME, OPERATOR_NAME = "odradek-broker", "odradek-operator"
# A user's certificate is CN=NAME, and its principal User:NAME as with SCRAM.
PRINCIPAL_RULES = "RULE:^CN=([^,]+)$/$1/, DEFAULT"

# Keys of the Secrets.
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CLUSTER_BUNDLE, CLIENTS_BUNDLE = "cluster-ca.crt", "clients-ca.crt"
LISTENERS_BUNDLE = "listeners-ca.crt"  # the CA of given certificates, for clients
CERTIFICATE, KEY = "tls.crt", "tls.key"


def cluster_ca_secret(cluster: str) -> str:
    return f"{cluster}-cluster-ca"


def clients_ca_secret(cluster: str) -> str:
    return f"{cluster}-clients-ca"


def trust_secret(cluster: str) -> str:
    return f"{cluster}-trust"


def brokers_secret(cluster: str) -> str:
    return f"{cluster}-brokers"


def operator_secret(cluster: str) -> str:
    return f"{cluster}-operator"


def node_store(node: int) -> str:
    """Key in the Secret of the brokers: private key and certificate of a node."""
    return f"broker-{node}.pem"


def listener_store(node: int) -> str:
    """Key in the Secret of the brokers: the certificate that clients see, if it is not our own."""
    return f"listener-{node}.pem"


def issued_secret(cluster: str, node: int) -> str:
    """The Secret that cert-manager fills for a node; its Certificate has the same name."""
    return f"{cluster}-listener-{node}"


def principal(common_name: str) -> str:
    return f"User:CN={common_name},O={ORGANIZATION}"


class IssuerRef(Spec, frozen=True, kw_only=True):
    """An issuer of cert-manager."""

    name: Annotated[NonEmpty, Meta(description="Name of the Issuer or ClusterIssuer.")]
    kind: Annotated[
        NonEmpty,
        Meta(
            description="Issuer, in the namespace of the cluster, ClusterIssuer, or the kind of an "
            "external issuer. Default: Issuer."
        ),
    ] = "Issuer"
    group: Annotated[
        NonEmpty, Meta(description="API group of the issuer. Default: cert-manager.io.")
    ] = "cert-manager.io"


class Certificates(Spec, frozen=True, kw_only=True):
    """How long certificates are valid and when they are renewed, without a restart."""

    validity_days: Annotated[
        int,
        Meta(
            ge=1,
            le=3650,
            description="How long certificates of brokers and of the operator are valid. Default: "
            "365.",
        ),
    ] = 365
    renew_before_days: Annotated[
        int,
        Meta(
            ge=0,
            le=3650,
            description="How long before their end they are renewed. It must be less than "
            "validityDays. Default: 30.",
        ),
    ] = 30
    ca_validity_days: Annotated[
        int, Meta(ge=1, le=36500, description="How long a CA is valid. Default: 1825.")
    ] = 1825
    ca_renew_before_days: Annotated[
        int,
        Meta(
            ge=0,
            le=36500,
            description="How long before its end a CA is replaced. It must be less than "
            "caValidityDays. Default: 180.",
        ),
    ] = 180
    ca_overlap_hours: Annotated[
        int,
        Meta(
            ge=0,
            le=8760,
            description="How long, at least, both CAs are trusted before certificates of the new "
            "one are used, and again before the old one is dropped: time for clients to load "
            "the new trust bundle. Default: 24.",
        ),
    ] = 24
    issuer_ref: Annotated[
        IssuerRef | None,
        Meta(
            description="The issuer of cert-manager that signs what brokers show to clients: one "
            "Certificate per broker, with all names that it advertises. Brokers, controllers and "
            "the operator still talk to each other with certificates of the cluster CA. On "
            "Kubernetes only. Default: none; the cluster CA signs these certificates, too."
        ),
    ] = None
    secret_name: Annotated[
        NonEmpty | None,
        Meta(
            description="A Secret in the namespace of the cluster with the certificate that all "
            "brokers show to clients: tls.crt (with its chain), tls.key and, if clients do not "
            "trust it anyway, ca.crt. Its changes are followed without a restart. Default: none."
        ),
    ] = None

    @property
    def external(self) -> bool:
        """Whether clients are shown certificates that the cluster CA did not sign."""
        return self.issuer_ref is not None or self.secret_name is not None
