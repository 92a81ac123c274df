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

from odradek_api.kafka_cluster.limits import REPLICATION_PORT
from odradek_api.kafka_cluster.listeners import Listener
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.pod_manifests import (
    ADMIN,
    CONTROLLER_PORTS,
    EXTERNAL,
    REPLICATION,
    Object,
    broker_labels,
    further_listeners,
    pod_labels,
    pod_template,
    port_name,
    rack_label,
    role_label,
)
from odradek_operator.kubernetes.racks import Rack

# The operator's pods, in whichever namespace it is installed (charts/odradek).
OPERATOR_PODS = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "odradek"}},
}
SERVICE_TYPES = {
    "nodeport": "NodePort",
    "loadbalancer": "LoadBalancer",
    "passthrough": "ClusterIP",
}


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
    if spec.network_policy.enabled or any(
        one.allowed_namespaces is not None for one in spec.listener_list
    ):
        made.append(_network_policy(desired))
    for listener in spec.external_listeners:
        made += _external_services(desired, racks, listener)
        if listener.type == "passthrough":
            made.append(_entry(desired, listener))
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
    """A claim, annotated with the cluster of its data: it may outlive the cluster (Retain)."""
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
    spec = desired.spec
    made = _object(desired, "v1", "Service", names.brokers_service(desired.name))
    made["spec"] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.selector(desired.name),
        "ports": [
            *_client_ports(desired),
            _port(ADMIN, spec.metrics.port),
            *([_port(REPLICATION, REPLICATION_PORT)] if desired.links.replication else ()),
        ],
    }
    return made


def _bootstrap(desired: DesiredCluster) -> Object:
    made = _object(desired, "v1", "Service", names.bootstrap_service(desired.name))
    made["spec"] = {
        "selector": broker_labels(desired),
        "ports": _client_ports(desired),
    }
    return made


def _client_ports(desired: DesiredCluster) -> list[Object]:
    """The ports of the listeners for clients inside Kubernetes.

    With several listeners a Service names the port by its number: when the first one is removed,
    pods that are not restarted yet have another listener under the name `kafka`.
    """
    spec = desired.spec
    listeners = [spec.client_listener, *further_listeners(spec)]
    ports = [_port(port_name(spec, one), one.port) for one in listeners]
    if desired.secured:
        ports = [{**port, "targetPort": port["port"]} for port in ports]
    return ports


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


def _entry(desired: DesiredCluster, listener: Listener) -> Object:
    name = names.entry_service(desired.name, listener.name)
    made = _object(desired, "v1", "Service", name)
    made["spec"] = {"selector": broker_labels(desired), "ports": [_external_port(listener)]}
    return made


def _external_port(listener: Listener) -> Object:
    port = _port(EXTERNAL, listener.port)
    # A pod that was not restarted yet does not know the name of the port of a new listener.
    return port if listener.name == EXTERNAL else {**port, "targetPort": listener.port}


def _external_services(
    desired: DesiredCluster, racks: Mapping[str, Rack], external: Listener
) -> list[Object]:
    node_ports = {one.id: one.node_port for one in external.advertised}
    made = []
    for rack in racks.values():
        for ordinal, broker in enumerate(rack.ids):
            if broker not in desired.brokers and broker not in desired.leaving:
                continue
            pod = rack.pod_name(desired.name, ordinal)
            name = names.external_service(pod, external.name)
            one = _object(desired, "v1", "Service", name)
            if external.annotations:
                one["metadata"]["annotations"] = dict(external.annotations)
            port = _external_port(external)
            if node_ports.get(broker) and external.type != "passthrough":
                port["nodePort"] = node_ports[broker]
            one["spec"] = {
                "type": SERVICE_TYPES[external.type],
                "publishNotReadyAddresses": True,
                "selector": {"statefulset.kubernetes.io/pod-name": pod},
                "ports": [port],
            }
            if external.type != "passthrough":
                # Traffic takes no hop over another node, and the broker sees the client's address.
                one["spec"]["externalTrafficPolicy"] = "Local"
            made.append(one)
    return made


def _network_policy(desired: DesiredCluster) -> Object:
    """Clients by listener; other nodes and the operator on the listener for brokers; metrics from
    everywhere."""
    spec = desired.spec
    own = {"podSelector": {"matchLabels": names.selector(desired.name)}}
    ingress = [
        {**_peers(spec, one), "ports": [_policy_port(one.port)]}
        for one in spec.listener_list
        if one.type == "internal"
    ]
    ingress.append({"ports": [_policy_port(spec.metrics.port)]})
    if spec.engine == "apache":
        operator = [OPERATOR_PODS] if desired.secured else []
        ports = [_policy_port(CONTROLLER_PORTS[name]) for name in desired.links.controllers]
        ingress.append({"from": [own, *operator], "ports": ports})
    if desired.links.replication:
        ingress.append({"from": [own, OPERATOR_PODS], "ports": [_policy_port(REPLICATION_PORT)]})
    ingress += [
        {**_peers(spec, one), "ports": [_policy_port(one.port)]} for one in spec.external_listeners
    ]
    name = names.brokers_service(desired.name)
    made = _object(desired, "networking.k8s.io/v1", "NetworkPolicy", name)
    made["spec"] = {
        "podSelector": {"matchLabels": names.selector(desired.name)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return made


def _peers(spec: KafkaClusterSpec, listener: Listener) -> Object:
    """The peers that may connect to a listener; empty: all."""
    allowed = listener.allowed_namespaces
    if allowed is None:
        if not spec.network_policy.enabled or listener.type != "internal":
            return {}
        allowed = spec.network_policy.namespaces
    if "*" in allowed:
        return {}
    peers: list[Object] = [{"podSelector": {}}]
    peers += [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        for name in allowed
    ]
    return {"from": peers}


def _policy_port(port: int) -> Object:
    return {"protocol": "TCP", "port": port}
