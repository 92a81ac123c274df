"""The objects of a cluster on Kubernetes, for server-side apply. Does no I/O.

    objects = manifests(desired, racks, files, owner, image)

One StatefulSet per rack, and another one for dedicated controllers, with affinity to the nodes of
that rack, so that a broker's rack is known before its pod exists. The update strategy is OnDelete:
only the plan decides which pod restarts, and when. A pod's settings are a file in an immutable
ConfigMap whose name is a hash of its content, and which the pod template names. So a pod that is
created again has the settings of its template, and one that only restarts keeps its settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from odradek_api.kafka_cluster.spec import CONTROLLER_PORT
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.pod_manifests import (
    ADMIN,
    EXTERNAL,
    KAFKA,
    Object,
    broker_labels,
    pod_labels,
    pod_template,
    rack_label,
    role_label,
)
from odradek_operator.kubernetes.racks import Rack


def manifests(
    desired: DesiredCluster,
    racks: Mapping[str, Rack],
    files: Mapping[str, str],
    owner: Object,
    image: str,
    controllers: Mapping[str, Rack] | None = None,
) -> list[Object]:
    """`files`: pod → its properties file, also of leaving brokers.

    `controllers`: the racks of the dedicated controllers.
    """
    spec = desired.spec
    config = config_map(desired, files)
    made = [
        config,
        _service_account(desired),
        _headless(desired),
        _bootstrap(desired),
        *_disruption_budgets(desired),
        *(
            _statefulset(desired, rack, config["metadata"]["name"], image)
            for rack in (*(controllers or {}).values(), *racks.values())
        ),
    ]
    if spec.network_policy.enabled:
        made.append(_network_policy(desired))
    if spec.listeners.external is not None:
        made += _external_services(desired, racks)
    for one in made:
        one["metadata"]["ownerReferences"] = [owner]
    return made


def config_map(desired: DesiredCluster, files: Mapping[str, str]) -> Object:
    content = {f"{pod}.properties": text for pod, text in sorted(files.items())}
    digest = hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:10]
    name = names.config_map_name(desired.name, digest)
    return {**_object(desired, "v1", "ConfigMap", name), "immutable": True, "data": content}


# -- StatefulSets ----------------------------------------------------------------------------------


def _statefulset(desired: DesiredCluster, rack: Rack, config: str, image: str) -> Object:
    spec = desired.spec
    made = _object(desired, "apps/v1", "StatefulSet", rack.set_name(desired.name))
    made["metadata"]["annotations"] = {
        names.RACK_ANNOTATION: rack.name,
        names.BROKER_IDS_ANNOTATION: ",".join(map(str, rack.ids)),
        names.REMOVED_IDS_ANNOTATION: ",".join(map(str, sorted(rack.removed))),
    }
    made["metadata"]["labels"] |= rack_label(rack) | role_label(desired, rack)
    keep = "Retain" if spec.storage.deletion_policy == "Retain" else "Delete"
    made["spec"] = {
        "replicas": rack.replicas,
        "serviceName": names.brokers_service(desired.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": pod_labels(desired, rack)},
        # The volume of a leaving broker is deleted by the plan, after its replicas have moved.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": keep, "whenScaled": "Retain"},
        "template": pod_template(desired, rack, config, image),
        "volumeClaimTemplates": [_claim(desired, rack, n) for n in range(rack.volumes(spec))],
    }
    return made


def _claim(desired: DesiredCluster, rack: Rack, volume: int) -> Object:
    """Annotated with its data's origin: a retained claim is all that a deleted cluster leaves."""
    spec = desired.spec
    dedicated = spec.controllers.storage if rack.controllers and spec.controllers else None
    class_name = dedicated.class_name if dedicated else spec.storage.class_name
    made: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": dedicated.size if dedicated else spec.storage.size}},
    }
    if class_name is not None:
        made["storageClassName"] = class_name
    metadata = {
        "name": f"data-{volume}",
        "labels": names.labels(desired.name) | role_label(desired, rack),
        "annotations": {
            names.RACK_ANNOTATION: rack.name,
            names.CLUSTER_ID_ANNOTATION: desired.cluster_id,
        },
    }
    return {"metadata": metadata, "spec": made}


# -- Services, budgets, policies -------------------------------------------------------------------


def _object(desired: DesiredCluster, api_version: str, kind: str, name: str) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": desired.namespace,
            "labels": names.labels(desired.name),
        },
    }


def _service_account(desired: DesiredCluster) -> Object:
    made = _object(desired, "v1", "ServiceAccount", desired.name)
    return {**made, "automountServiceAccountToken": False}


def _headless(desired: DesiredCluster) -> Object:
    """Brokers have to find each other before they are ready, so addresses are published early."""
    made = _object(desired, "v1", "Service", names.brokers_service(desired.name))
    made["spec"] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.selector(desired.name),
        "ports": [
            _port(KAFKA, desired.spec.listeners.port),
            _port(ADMIN, desired.spec.metrics.port),
        ],
    }
    return made


def _bootstrap(desired: DesiredCluster) -> Object:
    made = _object(desired, "v1", "Service", names.bootstrap_service(desired.name))
    made["spec"] = {
        "selector": broker_labels(desired),
        "ports": [_port(KAFKA, desired.spec.listeners.port)],
    }
    return made


def _port(name: str, port: int) -> Object:
    return {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}


def _disruption_budgets(desired: DesiredCluster) -> list[Object]:
    """Draining nodes may evict one broker, and one controller, at a time over all racks."""
    made = {names.brokers_service(desired.name): broker_labels(desired)}
    if desired.controllers:
        labels = names.selector(desired.name) | {names.ROLE_LABEL: names.CONTROLLER}
        made[names.controllers_budget(desired.name)] = labels
    return [
        _object(desired, "policy/v1", "PodDisruptionBudget", name)
        | {
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": labels},
                # A broker that is not ready must not block draining its node.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            }
        }
        for name, labels in made.items()
    ]


def _external_services(desired: DesiredCluster, racks: Mapping[str, Rack]) -> list[Object]:
    external = desired.spec.listeners.external
    assert external is not None
    node_ports = {one.id: one.node_port for one in external.brokers}
    made = []
    for rack in racks.values():
        for ordinal, broker in enumerate(rack.ids):
            if broker not in desired.brokers and broker not in desired.leaving:
                continue
            pod = rack.pod_name(desired.name, ordinal)
            one = _object(desired, "v1", "Service", names.external_service(pod))
            if external.annotations:
                one["metadata"]["annotations"] = dict(external.annotations)
            port = _port(EXTERNAL, external.port)
            if node_ports.get(broker):
                port["nodePort"] = node_ports[broker]
            one["spec"] = {
                "type": external.type,
                # No hop over another node, and the broker sees the client's address.
                "externalTrafficPolicy": "Local",
                "publishNotReadyAddresses": True,
                "selector": {"statefulset.kubernetes.io/pod-name": pod},
                "ports": [port],
            }
            made.append(one)
    return made


def _network_policy(desired: DesiredCluster) -> Object:
    """Clients of this namespace and of the listed ones; metrics from everywhere."""
    spec = desired.spec
    peers: list[Object] = [{"podSelector": {}}]
    peers += [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        for name in spec.network_policy.namespaces
    ]
    ingress: list[Object] = [
        {"from": peers, "ports": [_policy_port(spec.listeners.port)]},
        {"ports": [_policy_port(spec.metrics.port)]},
    ]
    if spec.engine == "apache":
        own = {"podSelector": {"matchLabels": names.selector(desired.name)}}
        ingress.append({"from": [own], "ports": [_policy_port(CONTROLLER_PORT)]})
    if spec.listeners.external is not None:
        ingress.append({"ports": [_policy_port(spec.listeners.external.port)]})
    name = names.brokers_service(desired.name)
    made = _object(desired, "networking.k8s.io/v1", "NetworkPolicy", name)
    made["spec"] = {
        "podSelector": {"matchLabels": names.selector(desired.name)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return made


def _policy_port(port: int) -> Object:
    return {"protocol": "TCP", "port": port}
