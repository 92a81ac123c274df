"""Where the nodes of a cluster listen on Kubernetes, from the observed state. Does no I/O."""

from __future__ import annotations

from odradek_api.base import Resource
from odradek_api.kafka_cluster.limits import REPLICATION_PORT
from odradek_api.kafka_cluster.listeners import Listener
from odradek_api.kafka_cluster.security import (
    CLIENTS_BUNDLE,
    CLUSTER_BUNDLE,
    listener_store,
    node_store,
)
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.desired import ClusterLayout, Endpoint
from odradek_operator.kafka.links import HOST_IP, REPLICATION_NAME
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kafka.security_settings import KeyStores
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.pod_manifests import (
    CONTROLLER_PORTS,
    DATA_DIR,
    KEYS_DIR,
    TRUST_DIR,
)
from odradek_operator.kubernetes.state import ClusterState

PASSTHROUGH_PORT = 443  # of the proxy


def endpoint(
    state: ClusterState, node: int, resource: Resource[KafkaClusterSpec], layout: ClusterLayout
) -> Endpoint:
    spec, links = layout.spec, layout.links
    pod = state.pod_of(node)
    host = f"{pod}.{names.brokers_service(resource.name)}.{resource.namespace}.svc"
    admin = f"0.0.0.0:{spec.metrics.port}"
    keys = stores(node, given=spec.certificates.external) if links.secured else None
    controllers = {name: f"{host}:{CONTROLLER_PORTS[name]}" for name in links.controllers}
    if is_controller(node):
        data = (f"{DATA_DIR}/data-0/log",)
        return Endpoint(controllers[links.quorum], "", "", admin, data, controllers, stores=keys)
    ports = {one.kafka_name: one.port for one in spec.listener_list if one.type == "internal"}
    given = {
        one.kafka_name: next((a for a in one.advertised if a.id == node), None)
        for one in spec.listener_list
        if one.type == "internal"
    }
    if links.replication:
        ports[REPLICATION_NAME] = REPLICATION_PORT
    advertised = {
        name: f"{own.host}:{own.port or port}" if (own := given.get(name)) else f"{host}:{port}"
        for name, port in ports.items()
    }
    for external in spec.external_listeners:
        if outside := external_address(state, node, external):
            ports[external.kafka_name] = external.port
            advertised[external.kafka_name] = outside
    return Endpoint(
        f"{host}:{ports[links.inter_broker]}",
        ",".join(f"{name}://:{port}" for name, port in ports.items()),
        ",".join(f"{name}://{address}" for name, address in advertised.items()),
        admin,
        tuple(f"{DATA_DIR}/data-{n}/log" for n in range(spec.storage.volumes)),
        controllers,
        advertised[spec.client_listener.kafka_name],
        keys,
    )


def stores(node: int, *, given: bool) -> KeyStores:
    """In the pods: the Secrets of the cluster, mounted."""
    return KeyStores(
        f"{KEYS_DIR}/{node_store(node)}",
        f"{TRUST_DIR}/{CLUSTER_BUNDLE}",
        f"{TRUST_DIR}/{CLIENTS_BUNDLE}",
        f"{KEYS_DIR}/{listener_store(node)}" if given else "",
    )


def external_address(state: ClusterState, broker: int, external: Listener) -> str:
    """host:port for clients outside Kubernetes; empty until its Service has an address."""
    given = next((one for one in external.advertised if one.id == broker), None)
    service = state.services.get(names.external_service(state.pod_of(broker), external.name))
    if service is None or service.spec is None:
        return ""
    host = given.host if given else external.host_of(str(broker))
    port: int | None = given.port if given else None
    if external.type == "passthrough":
        port = port or PASSTHROUGH_PORT
    elif external.type == "loadbalancer":
        balancer = service.status.loadBalancer if service.status else None
        found = (balancer.ingress if balancer else None) or []
        host = host or (found[0].hostname or found[0].ip or "" if found else "")
        port = port or external.port
    else:
        host = host or HOST_IP
        port = port or (service.spec.ports or [])[0].nodePort
    return f"{host}:{port}" if host and port else ""
