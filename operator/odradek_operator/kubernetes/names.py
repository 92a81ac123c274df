"""Names, labels and annotations of the Kubernetes objects of a cluster.

Cluster `main` with brokers 0 and 3 in rack `eu-west-1a`:

    StatefulSet  main-eu-west-1a         pods main-eu-west-1a-0 (broker 0) and -1 (broker 3)
    Service      main-brokers            headless: main-eu-west-1a-0.main-brokers.default.svc
    StatefulSet  main-controllers-eu-west-1a   dedicated controllers: spec.controllers
    Service      main-bootstrap          the address for clients
    ConfigMap    main-config-5f1c0a9e22  a properties file per pod; immutable
"""

from __future__ import annotations

import hashlib
import re

from odradek_api.base import GROUP

CLUSTER_LABEL = f"{GROUP}/cluster"
RACK_LABEL = f"{GROUP}/rack"
RACK_ANNOTATION = f"{GROUP}/rack"  # of a StatefulSet and of claims: the rack's own name
BROKER_IDS_ANNOTATION = f"{GROUP}/broker-ids"  # of a StatefulSet: "0,3"; the index is the ordinal
REMOVED_IDS_ANNOTATION = f"{GROUP}/removed-ids"  # ids of removed brokers
BROKER_ID_LABEL = f"{GROUP}/broker-id"  # of a claim
CLUSTER_ID_ANNOTATION = f"{GROUP}/cluster-id"  # of a claim: the Kafka cluster whose data it holds
APPLIED_ANNOTATION = f"{GROUP}/applied"  # a hash of what was applied last
SETTINGS_ANNOTATION = f"{GROUP}/settings"  # of a pod: its @-settings as JSON (kafka/desired.py)
ROLE_LABEL = f"{GROUP}/role"  # broker or controller, if there are dedicated controllers
BROKER, CONTROLLER = "broker", "controller"
FIELD_MANAGER = "odradek-operator"

# A pod's name is a DNS label (63 characters) and carries the ordinal; the name of a listener
# comes after it.
LABEL_MAX, NAME_MAX = 63, 50
CLUSTER_NAME_MAX = 40


def unusable(cluster: str) -> str:
    """Why a cluster cannot have this name on Kubernetes; empty if it can. Services use it."""
    if len(cluster) <= CLUSTER_NAME_MAX and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", cluster):
        return ""
    rule = f"at most {CLUSTER_NAME_MAX} lower-case letters, digits and -, starting with a letter"
    return f"{cluster}: must be {rule}"


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


def external_service(pod: str, listener: str) -> str:
    name = f"{pod}-{listener}"
    return name if len(name) <= LABEL_MAX else f"{pod}-{_short(listener)}"


def entry_service(cluster: str, listener: str) -> str:
    """Leads to any broker: for a proxy that passes TLS through."""
    return f"{cluster}-{listener}-bootstrap"


def config_map_name(cluster: str, digest: str) -> str:
    return f"{cluster}-config-{digest}"


def claim_name(volume: int, pod: str) -> str:
    """The name that Kubernetes gives to the claim of a StatefulSet's pod."""
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
