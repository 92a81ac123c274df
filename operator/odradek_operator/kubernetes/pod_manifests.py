"""The pods of brokers and controllers: template, container, probes and placement. Does no I/O."""

from __future__ import annotations

from typing import Any

import msgspec
from lightkube.utils.quantity import parse_quantity

from odradek_api.kafka_cluster.limits import (
    CONTROLLER_PORT,
    CONTROLLER_TLS_PORT,
    REPLICATION_PORT,
)
from odradek_api.kafka_cluster.listeners import Listener
from odradek_api.kafka_cluster.pods import Resources
from odradek_api.kafka_cluster.security import brokers_secret, trust_secret
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.links import CONTROLLER_NAME, CONTROLLER_TLS_NAME
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.racks import Rack

Object = dict[str, Any]

CONFIG_DIR = "/etc/odradek"
DATA_DIR = "/var/lib/odradek"
CERTIFICATES_DIR = "/etc/odradek-certificates"
KEYS_DIR, TRUST_DIR = f"{CERTIFICATES_DIR}/keys", f"{CERTIFICATES_DIR}/trust"
CERTIFICATES_MODE = 0o440  # the group of the pod may read them
USER_ID = 10001  # of the images; it needs no name
HEAP = "KAFKA_HEAP_OPTS"  # environment variable of engine apache
KAFKA, EXTERNAL, ADMIN = "kafka", "external", "admin"  # names of ports
REPLICATION = "replication"
CONTROLLER_PORTS = {CONTROLLER_NAME: CONTROLLER_PORT, CONTROLLER_TLS_NAME: CONTROLLER_TLS_PORT}


def rack_label(rack: Rack) -> dict[str, str]:
    return {names.RACK_LABEL: names.rack_slug(rack.name)}


def role_label(desired: DesiredCluster, rack: Rack) -> dict[str, str]:
    if not desired.controllers:
        return {}
    return {names.ROLE_LABEL: names.CONTROLLER if rack.controllers else names.BROKER}


def broker_labels(desired: DesiredCluster) -> dict[str, str]:
    """Labels that select all brokers and no dedicated controller."""
    return names.selector(desired.name) | (
        {names.ROLE_LABEL: names.BROKER} if desired.controllers else {}
    )


def pod_labels(desired: DesiredCluster, rack: Rack) -> dict[str, str]:
    return names.selector(desired.name) | rack_label(rack) | role_label(desired, rack)


def pod_template(desired: DesiredCluster, rack: Rack, config: str, image: str) -> Object:
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
        *(_certificates(desired.name) if desired.secured else ()),
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
        "containers": [_container(desired, rack, image)],
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
                **rack_label(rack),
                **role_label(desired, rack),
            },
            "annotations": {**pod.annotations, names.SETTINGS_ANNOTATION: settings},
        },
        "spec": made,
    }


def _container(desired: DesiredCluster, rack: Rack, image: str) -> Object:
    spec = desired.spec
    ports = [(KAFKA, spec.client_listener.port), (ADMIN, spec.metrics.port)]
    ports += [(port_name(spec, one), one.port) for one in further_listeners(spec)]
    if desired.links.replication:
        ports.append((REPLICATION, REPLICATION_PORT))
    resources = spec.resources
    if rack.controllers and spec.controllers is not None:
        ports = [(name.lower(), CONTROLLER_PORTS[name]) for name in desired.links.controllers]
        ports.append((ADMIN, spec.metrics.port))
        resources = spec.controllers.resources
    else:
        ports += [(port_name(spec, one), one.port) for one in spec.external_listeners]
    data = [
        {"name": f"data-{n}", "mountPath": f"{DATA_DIR}/data-{n}"}
        for n in range(rack.volumes(spec))
    ]
    # The embedded broker reads the port from its file; for Apache Kafka its launcher serves it.
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
        # Log recovery after a crash may take long and must not get the broker killed: /healthz
        # answers during it.
        "startupProbe": _probe("/healthz", period=2, failures=30),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        # The last log line says why a broker ended; so the pod's status shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *(_CERTIFICATE_MOUNTS if desired.secured else ()),
            *data,
            *spec.pod_template.volume_mounts,
        ],
    }


def further_listeners(spec: KafkaClusterSpec) -> list[Listener]:
    """Listeners for clients inside Kubernetes, without the first one."""
    internal = [one for one in spec.listener_list if one.type == "internal"]
    return [one for one in internal if one is not internal[0]]


def port_name(spec: KafkaClusterSpec, listener: Listener) -> str:
    """The name of the port in pods and Services: `kafka` for the first listener."""
    if listener.type != "internal":
        return EXTERNAL if listener.name == EXTERNAL else f"e-{listener.name}"
    return KAFKA if listener.name == spec.client_listener.name else f"l-{listener.name}"


def _certificates(cluster: str) -> list[Object]:
    """Without items: the kubelet updates the files when the Secret changes."""
    secrets = {"certificates": brokers_secret(cluster), "trust": trust_secret(cluster)}
    return [
        {"name": name, "secret": {"secretName": secret, "defaultMode": CERTIFICATES_MODE}}
        for name, secret in secrets.items()
    ]


_CERTIFICATE_MOUNTS = (
    {"name": "certificates", "mountPath": KEYS_DIR, "readOnly": True},
    {"name": "trust", "mountPath": TRUST_DIR, "readOnly": True},
)


def _heap(spec: KafkaClusterSpec, resources: Resources) -> list[Object]:
    """Half of the memory limit; the rest is for the JVM itself and the page cache."""
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
    """To the nodes of the rack only: without room there, the pod stays pending and is reported."""
    if not rack.name:
        return spec.pod_template.affinity
    here = {"key": spec.racks.topology_key, "operator": "In", "values": [rack.name]}
    own = spec.pod_template.affinity
    terms = (
        own.get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    # Terms are alternatives, so the rack has to be required in each of them.
    both = [
        {**term, "matchExpressions": [*term.get("matchExpressions", []), here]}
        for term in terms or [{}]
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": both}}
    return {**own, "nodeAffinity": {**own.get("nodeAffinity", {}), **required}}


def _spread(desired: DesiredCluster, rack: Rack) -> Object:
    """Brokers of one rack go to different nodes, as far as possible."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": pod_labels(desired, rack)},
    }
