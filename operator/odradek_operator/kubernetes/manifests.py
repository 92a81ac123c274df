"""What a cluster is on Kubernetes, as objects for server-side apply: pure, nothing is looked up.

    objects = manifests(desired, racks, files, owner, image)

A StatefulSet per rack, and another one for controllers that are apart (OnDelete: only the plan
decides who restarts, and when) with affinity to the nodes of that rack, so that a broker's rack is
known before its pod exists. A pod's settings are a file in a ConfigMap that is never changed: its
name is a hash of its content, and the pod's template names it. So a pod that Kubernetes makes anew
has the settings of its template, and one that only restarts has those that it began with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from lightkube.utils.quantity import parse_quantity

from odradek_api.kafka_cluster.pods import Resources
from odradek_api.kafka_cluster.spec import CONTROLLER_PORT, KafkaClusterSpec
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kubernetes import names

Object = dict[str, Any]

CONFIG_DIR = "/etc/odradek"
DATA_DIR = "/var/lib/odradek"
USER_ID = 10001  # of the images; no name needs to exist for it
HEAP = "KAFKA_HEAP_OPTS"  # of engine apache
KAFKA, EXTERNAL, ADMIN, CONTROLLER = "kafka", "external", "admin", "controller"  # names of ports


@dataclass(frozen=True)
class Rack:
    """The StatefulSet of a rack. `ids` only grows: an id is the same pod, and volume, for life."""

    name: str
    ids: tuple[int, ...] = ()
    replicas: int = 0
    removed: frozenset[int] = frozenset()  # ids that are brokers no more; their volumes may be kept
    controllers: bool = False  # they are controllers, and no brokers

    def set_name(self, cluster: str) -> str:
        return names.statefulset_name(cluster, self.name, controllers=self.controllers)

    def pod_name(self, cluster: str, ordinal: int) -> str:
        return names.pod_name(cluster, self.name, ordinal, controllers=self.controllers)

    def volumes(self, spec: KafkaClusterSpec) -> int:
        return 1 if self.controllers else spec.storage.volumes


def manifests(
    desired: DesiredCluster,
    racks: Mapping[str, Rack],
    files: Mapping[str, str],
    owner: Object,
    image: str,
    controllers: Mapping[str, Rack] | None = None,
) -> list[Object]:
    """`files`: pod → its properties file, also of brokers that are about to leave.

    `controllers`: the racks of those that are apart.
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


# -- pods ------------------------------------------------------------------------------------------


def _statefulset(desired: DesiredCluster, rack: Rack, config: str, image: str) -> Object:
    spec = desired.spec
    made = _object(desired, "apps/v1", "StatefulSet", rack.set_name(desired.name))
    made["metadata"]["annotations"] = {
        names.RACK_ANNOTATION: rack.name,
        names.BROKER_IDS_ANNOTATION: ",".join(map(str, rack.ids)),
        names.REMOVED_IDS_ANNOTATION: ",".join(map(str, sorted(rack.removed))),
    }
    made["metadata"]["labels"] |= _rack_label(rack) | _role(desired, rack)
    keep = "Retain" if spec.storage.deletion_policy == "Retain" else "Delete"
    made["spec"] = {
        "replicas": rack.replicas,
        "serviceName": names.brokers_service(desired.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": _pods_of(desired, rack)},
        # A volume of a broker that leaves is deleted by the plan, once its data is elsewhere.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": keep, "whenScaled": "Retain"},
        "template": _pod_template(desired, rack, config, image),
        "volumeClaimTemplates": [_claim(desired, rack, n) for n in range(rack.volumes(spec))],
    }
    return made


def _rack_label(rack: Rack) -> dict[str, str]:
    return {names.RACK_LABEL: names.rack_slug(rack.name)}


def _role(desired: DesiredCluster, rack: Rack) -> dict[str, str]:
    if not desired.controllers:
        return {}
    return {names.ROLE_LABEL: names.CONTROLLER if rack.controllers else names.BROKER}


def _brokers_of(desired: DesiredCluster) -> dict[str, str]:
    """The labels of all brokers, and of no controller that is apart."""
    return names.selector(desired.name) | (
        {names.ROLE_LABEL: names.BROKER} if desired.controllers else {}
    )


def _pods_of(desired: DesiredCluster, rack: Rack) -> dict[str, str]:
    return names.selector(desired.name) | _rack_label(rack) | _role(desired, rack)


def _pod_template(desired: DesiredCluster, rack: Rack, config: str, image: str) -> Object:
    spec = desired.spec
    pod = spec.pod_template
    special = {
        name: value
        for node in (desired.controllers if rack.controllers else desired.brokers).values()
        for name, value in node.settings.items()
        if name.startswith("@")
    }
    settings = msgspec.json.encode(special, order="deterministic").decode()
    volumes = [
        {"name": "config", "configMap": {"name": config}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        *pod.volumes,
    ]
    made: Object = {
        "serviceAccountName": desired.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pod.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        | pod.security_context,
        "affinity": _affinity(spec, rack),
        "topologySpreadConstraints": [_spread(desired, rack)],
        "containers": [_container(spec, rack, image)],
        "volumes": volumes,
    }
    if pod.node_selector:
        made["nodeSelector"] = pod.node_selector
    if pod.tolerations:
        made["tolerations"] = pod.tolerations
    if pod.image_pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in pod.image_pull_secrets]
    if pod.priority_class_name:
        made["priorityClassName"] = pod.priority_class_name
    return {
        "metadata": {
            "labels": {
                **pod.labels,
                **names.labels(desired.name),
                **_rack_label(rack),
                **_role(desired, rack),
            },
            "annotations": {**pod.annotations, names.SETTINGS_ANNOTATION: settings},
        },
        "spec": made,
    }


def _container(spec: KafkaClusterSpec, rack: Rack, image: str) -> Object:
    ports = [(KAFKA, spec.listeners.port), (ADMIN, spec.metrics.port)]
    resources = spec.resources
    if rack.controllers and spec.controllers is not None:
        ports = [(CONTROLLER, CONTROLLER_PORT), (ADMIN, spec.metrics.port)]
        resources = spec.controllers.resources
    elif spec.listeners.external is not None:
        ports.append((EXTERNAL, spec.listeners.external.port))
    data = [
        {"name": f"data-{n}", "mountPath": f"{DATA_DIR}/data-{n}"}
        for n in range(rack.volumes(spec))
    ]
    # Our broker reads it from its file; Apache Kafka has no such port, what starts it has.
    admin = [f"--admin-port={spec.metrics.port}"] if spec.engine == "apache" else []
    return {
        "name": names.CONTROLLER if rack.controllers else names.BROKER,
        "image": image,
        "args": ["--config", f"{CONFIG_DIR}/$(POD_NAME).properties", *admin],
        "env": [
            _field("POD_NAME", "metadata.name"),
            _field("HOST_IP", "status.hostIP"),
            *_heap(spec, resources),
            *({"name": name, "value": str(value)} for name, value in spec.pod_template.env.items()),
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in ports],
        "resources": {
            kind: values
            for kind, values in (
                ("requests", resources.requests),
                ("limits", resources.limits),
            )
            if values
        },
        # A recovery after a crash may take long and is no reason to kill the broker: /healthz
        # answers during it.
        "startupProbe": _probe("/healthz", period=2, failures=30),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        # Why a broker ended is the last line of its log; the status of the pod shows it then.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *data,
            *spec.pod_template.volume_mounts,
        ],
    }


def _heap(spec: KafkaClusterSpec, resources: Resources) -> list[Object]:
    """Half of the memory that the pod may have; the rest is for the JVM itself and page cache."""
    limit = resources.limits.get("memory")
    if spec.engine != "apache" or limit is None or HEAP in spec.pod_template.env:
        return []
    try:
        size = int(parse_quantity(str(limit)) or 0) // 2 >> 20
    except ValueError:  # the API server refuses the pod; until then use the image's default
        return []
    return [{"name": HEAP, "value": f"-Xms{size}m -Xmx{size}m"}]


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": ADMIN},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 5,
    }


def _affinity(spec: KafkaClusterSpec, rack: Rack) -> Object:
    """To the nodes of the rack, and to nothing else: a rack without room is told, not left."""
    if not rack.name:
        return spec.pod_template.affinity
    here = {"key": spec.racks.topology_key, "operator": "In", "values": [rack.name]}
    own = spec.pod_template.affinity
    terms = (
        own.get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    # Terms are alternatives: the rack has to be in each of them.
    both = [
        {**term, "matchExpressions": [*term.get("matchExpressions", []), here]}
        for term in terms or [{}]
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": both}}
    return {**own, "nodeAffinity": {**own.get("nodeAffinity", {}), **required}}


def _spread(desired: DesiredCluster, rack: Rack) -> Object:
    """Brokers of one rack go to different nodes, as long as there are any."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _pods_of(desired, rack)},
    }


def _claim(desired: DesiredCluster, rack: Rack, volume: int) -> Object:
    """It says whose data is on it: all that is left when a cluster is deleted and made again."""
    spec = desired.spec
    apart = spec.controllers.storage if rack.controllers and spec.controllers else None
    class_name = apart.class_name if apart else spec.storage.class_name
    made: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": apart.size if apart else spec.storage.size}},
    }
    if class_name is not None:
        made["storageClassName"] = class_name
    metadata = {
        "name": f"data-{volume}",
        "labels": names.labels(desired.name) | _role(desired, rack),
        "annotations": {
            names.RACK_ANNOTATION: rack.name,
            names.CLUSTER_ID_ANNOTATION: desired.cluster_id,
        },
    }
    return {"metadata": metadata, "spec": made}


# -- what is around them ---------------------------------------------------------------------------


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
    """Brokers have to find each other before they are ready."""
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
        "selector": _brokers_of(desired),
        "ports": [_port(KAFKA, desired.spec.listeners.port)],
    }
    return made


def _port(name: str, port: int) -> Object:
    return {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}


def _disruption_budgets(desired: DesiredCluster) -> list[Object]:
    """Drains of nodes take one broker, and one controller, at a time, whatever the rack."""
    made = {names.brokers_service(desired.name): _brokers_of(desired)}
    if desired.controllers:
        labels = names.selector(desired.name) | {names.ROLE_LABEL: names.CONTROLLER}
        made[names.controllers_budget(desired.name)] = labels
    return [
        _object(desired, "policy/v1", "PodDisruptionBudget", name)
        | {
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": labels},
                # A broker that is not ready protects nothing: its node may be emptied.
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
                # Without a detour over other nodes; and the broker sees who the client is.
                "externalTrafficPolicy": "Local",
                "publishNotReadyAddresses": True,
                "selector": {"statefulset.kubernetes.io/pod-name": pod},
                "ports": [port],
            }
            made.append(one)
    return made


def _network_policy(desired: DesiredCluster) -> Object:
    """Clients of this namespace and of those that are named; metrics from everywhere."""
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
