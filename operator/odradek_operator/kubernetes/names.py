"""Names and labels of everything that a cluster has on Kubernetes.

Cluster `main` with brokers 0 and 3 in rack `eu-west-1a`:

    StatefulSet  main-eu-west-1a         pods main-eu-west-1a-0 (broker 0) and -1 (broker 3)
    Service      main-brokers            headless: main-eu-west-1a-0.main-brokers.default.svc
    StatefulSet  main-controllers-eu-west-1a   controllers that are apart: spec.controllers
    Service      main-bootstrap          where clients begin
    ConfigMap    main-config-5f1c0a9e22  a properties file per pod; never changed, only replaced
"""

from __future__ import annotations

import hashlib
import re

from odradek_api.base import GROUP

CLUSTER_LABEL = f"{GROUP}/cluster"
RACK_LABEL = f"{GROUP}/rack"
RACK_ANNOTATION = f"{GROUP}/rack"  # of a StatefulSet and of claims: the rack's own name
BROKER_IDS_ANNOTATION = f"{GROUP}/broker-ids"  # of a StatefulSet: "0,3"; the index is the ordinal
REMOVED_IDS_ANNOTATION = f"{GROUP}/removed-ids"  # those of them that are brokers no more
BROKER_ID_LABEL = f"{GROUP}/broker-id"  # of a claim
CLUSTER_ID_ANNOTATION = f"{GROUP}/cluster-id"  # of a claim: whose data is on it
APPLIED_ANNOTATION = f"{GROUP}/applied"  # a hash of what was applied last
SETTINGS_ANNOTATION = f"{GROUP}/settings"  # of a pod: the @-settings it was made with, as JSON
ROLE_LABEL = f"{GROUP}/role"  # broker or controller, where controllers are apart
BROKER, CONTROLLER = "broker", "controller"
FIELD_MANAGER = "odradek-operator"

# A pod's name is a DNS label (63 characters) and carries the ordinal; "-external" comes after it.
NAME_MAX = 50
CLUSTER_NAME_MAX = 40


def unusable(cluster: str) -> str:
    """Why a cluster cannot be called so here; empty if it can. Services are named after it."""
    if len(cluster) <= CLUSTER_NAME_MAX and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", cluster):
        return ""
    return f"{cluster}: at most {CLUSTER_NAME_MAX} small letters, digits and -, the first a letter"


def rack_slug(rack: str) -> str:
    """A rack as part of a name. "eu-west-1a" stays; "Zone A" → "zone-a-1b2c3d"; "" → "all"."""
    if not rack:
        return "all"
    slug = re.sub(r"[^a-z0-9]+", "-", rack.lower()).strip("-")[:30].strip("-")
    return slug if slug == rack else f"{slug or 'rack'}-{_short(rack)}"


def statefulset_name(cluster: str, rack: str, *, controllers: bool = False) -> str:
    name = f"{cluster}-{'controllers-' if controllers else ''}{rack_slug(rack)}"
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 7].rstrip('-')}-{_short(name)}"


def pod_name(cluster: str, rack: str, ordinal: int, *, controllers: bool = False) -> str:
    return f"{statefulset_name(cluster, rack, controllers=controllers)}-{ordinal}"


def brokers_service(cluster: str) -> str:
    return f"{cluster}-brokers"


def controllers_budget(cluster: str) -> str:
    return f"{cluster}-controllers"


def bootstrap_service(cluster: str) -> str:
    return f"{cluster}-bootstrap"


def external_service(pod: str) -> str:
    return f"{pod}-external"


def config_map_name(cluster: str, digest: str) -> str:
    return f"{cluster}-config-{digest}"


def claim_name(volume: int, pod: str) -> str:
    """As Kubernetes names the claims of a StatefulSet's template."""
    return f"data-{volume}-{pod}"


def selector(cluster: str) -> dict[str, str]:
    return {CLUSTER_LABEL: cluster}


def labels(cluster: str) -> dict[str, str]:
    return {
        **selector(cluster),
        "app.kubernetes.io/name": "kafka",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
    }


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
