"""Where the nodes of a cluster listen on Kubernetes, from the observed state. Does no I/O."""

from __future__ import annotations

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import CONTROLLER_PORT, External, KafkaClusterSpec
from odradek_operator.kafka.desired import Endpoint
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.pod_manifests import DATA_DIR
from odradek_operator.kubernetes.state import ClusterState


def endpoint(
    state: ClusterState, node: int, resource: Resource[KafkaClusterSpec], spec: KafkaClusterSpec
) -> Endpoint:
    pod = state.pod_of(node)
    host = f"{pod}.{names.brokers_service(resource.name)}.{resource.namespace}.svc"
    admin = f"0.0.0.0:{spec.metrics.port}"
    controller = f"{host}:{CONTROLLER_PORT}"
    if is_controller(node):
        return Endpoint(controller, "", "", admin, (f"{DATA_DIR}/data-0/log",), controller)
    port = spec.listeners.port
    address = f"{host}:{port}"
    listeners, advertised = f"PLAINTEXT://:{port}", f"PLAINTEXT://{address}"
    external = spec.listeners.external
    if external is not None and (outside := external_address(state, node, external)):
        listeners += f",EXTERNAL://:{external.port}"
        advertised += f",EXTERNAL://{outside}"
    dirs = tuple(f"{DATA_DIR}/data-{n}/log" for n in range(spec.storage.volumes))
    return Endpoint(address, listeners, advertised, admin, dirs, controller)


def external_address(state: ClusterState, broker: int, external: External) -> str:
    """host:port for clients outside Kubernetes; empty until its Service has an address."""
    given = next((one for one in external.brokers if one.id == broker), None)
    service = state.services.get(names.external_service(state.pod_of(broker)))
    if service is None or service.spec is None:
        return ""
    if external.type == "LoadBalancer":
        balancer = service.status.loadBalancer if service.status else None
        found = (balancer.ingress if balancer else None) or []
        host = given.host if given else found and (found[0].hostname or found[0].ip)
        port: int | None = given.port if given and given.port else external.port
    else:
        # The address of the node, which only the pod itself knows.
        host = given.host if given else "${env:HOST_IP}"
        port = given.port if given and given.port else (service.spec.ports or [])[0].nodePort
    return f"{host}:{port}" if host and port else ""
