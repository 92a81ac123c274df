"""How users connect to a cluster: its listeners, their addresses, and its certificates."""

from __future__ import annotations

from odradek_api.kafka_cluster.security import BROKER_NAME, OPERATOR_NAME, principal
from odradek_operator.kafka.client_addresses import client_addresses
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.observed import Observed
from odradek_operator.security.entrance import ClientListener, Entrance
from odradek_operator.security.material import Material

ADDRESSES_MAX = 6  # a client that reaches one broker finds the others
RESERVED = frozenset({principal(BROKER_NAME), principal(OPERATOR_NAME)})


def entrance(
    desired: DesiredCluster,
    observed: Observed,
    material: Material | None,
    services: dict[str, str] | None = None,
) -> Entrance:
    """`services`: listener → the address that leads to any broker, where there is one."""
    found = client_addresses(desired, observed)
    listeners = []
    for one in desired.spec.listener_list:
        hosts = [at[one.kafka_name] for at in found if one.kafka_name in at]
        bootstrap = (services or {}).get(one.name) or ",".join(hosts[:ADDRESSES_MAX])
        listeners.append(ClientListener(one.name, one.authentication.type, one.protocol, bootstrap))
    clients_ca = material.clients_ca.pair if material and material.clients_ca else None
    if not any(one.authentication == "mtls" for one in listeners):
        clients_ca = None  # no listener accepts its certificates
    bundle = material.cluster_bundle if material else b""
    if material and desired.spec.certificates.external:
        bundle = material.listeners_ca
    return Entrance(tuple(listeners), bundle, clients_ca, RESERVED)
