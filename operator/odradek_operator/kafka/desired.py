"""spec → desired state: nodes with all their settings, and topics. Does no I/O.

    layout = lay_out(resource, racks, known)            # which nodes in which racks
    endpoints = platform.endpoints(layout)
    desired = build(resource, layout, known, endpoints)

`Known` is what must survive a restart of the operator: which ids exist, which nodes formed the
cluster. An `Endpoint` is where a node listens and keeps its data: pod names on Kubernetes, ports
and directories on this machine. Both come from the platform, as arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from odradek_api.base import RESTART_ANNOTATION, Resource, settings_text
from odradek_api.kafka_cluster.pods import Resources
from odradek_api.kafka_cluster.rules import CONTROLLER_COUNT_FIXED, CONTROLLERS_FIXED
from odradek_api.kafka_cluster.spec import Controllers, KafkaClusterSpec
from odradek_api.topic import TopicSpec
from odradek_operator.kafka.apache import FORMAT, apache_settings
from odradek_operator.kafka.links import INTER_BROKER, Links, decide, with_links
from odradek_operator.kafka.placement import (
    Placement,
    is_controller,
    place_brokers,
    place_controllers,
    racks_in_use,
)
from odradek_operator.kafka.security_settings import KeyStores, security_settings

VOTERS_MAX = 3
# Used at a broker's first start only; afterwards it reads the quorum from its own disk. So a change
# of these (a broker more, a broker less) never needs a restart.
DISCOVERY_SETTINGS = frozenset(
    {"controller.quorum.voters", "controller.quorum.bootstrap.servers", FORMAT}
)
# Brokers start together with their dedicated controllers and exit if none accepts them in time.
# Kafka's default of one minute is too short for a busy machine.
REGISTRATION_TIMEOUT, REGISTRATION_TIMEOUT_MS = "initial.broker.registration.timeout.ms", "300000"
# Not Kafka settings, but a change needs a restart like one; they are never passed to the broker.
TEMPLATE, IMAGE, RESTART, SECRETS = "@template", "@image", "@restart", "@secrets"


@dataclass(frozen=True)
class Endpoint:
    """Where one node listens. `address` is host:port of the inter-broker listener.

    A dedicated controller has only the controller listener; its `address` is that one.
    """

    address: str
    listeners: str
    advertised: str
    admin: str
    log_dirs: tuple[str, ...]
    # Engine apache: listener of the metadata quorum → host:port, the one in use first.
    controllers: Mapping[str, str] = field(default_factory=dict)
    clients: str = ""  # host:port of the first listener for clients; empty: the same as `address`
    stores: KeyStores | None = None  # where its certificates are


@dataclass(frozen=True)
class Known:
    existing: Mapping[int, str] = field(default_factory=dict)  # broker → rack
    kept: Mapping[int, str] = field(default_factory=dict)  # removed brokers with retained volumes
    formation: tuple[int, ...] = ()  # the nodes that formed the cluster; empty: not formed yet
    cluster_id: str = ""
    controllers: Mapping[int, str] = field(default_factory=dict)  # dedicated ones: id → rack
    secrets: str = ""  # a hash of the Secrets that its pods mount
    started_with: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # existing nodes


@dataclass(frozen=True)
class ClusterLayout:
    """Which nodes there should be, and in which rack each one is."""

    spec: KafkaClusterSpec  # as it can be fulfilled
    racks: tuple[str, ...]
    placement: Placement
    controllers: Mapping[int, str]  # dedicated ones: id → rack
    links: Links
    refused: str = ""  # why `spec` differs from the resource's

    @property
    def nodes(self) -> dict[int, str]:
        """id → rack, without brokers that are leaving."""
        return {**self.placement.brokers, **self.controllers}


@dataclass(frozen=True)
class DesiredBroker:
    id: int
    rack: str
    address: str
    settings: Mapping[str, str]  # Kafka settings, and the @-settings above
    clients: str = ""  # host:port for clients; empty: the same as `address`

    @property
    def properties(self) -> dict[str, str]:
        """The settings that the broker gets."""
        return {n: v for n, v in self.settings.items() if not n.startswith("@")}


@dataclass(frozen=True)
class DesiredTopic:
    name: str
    owner: str  # "namespace/name" of the resource
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    delete: bool = False  # the resource is being deleted
    retain: bool = False
    adopt: bool = False


@dataclass(frozen=True)
class DesiredCluster:
    name: str
    namespace: str
    spec: KafkaClusterSpec
    brokers: Mapping[int, DesiredBroker]
    leaving: Mapping[int, str]
    racks: tuple[str, ...]
    formation: tuple[int, ...]
    cluster_id: str
    generation: int = 0
    controllers: Mapping[int, DesiredBroker] = field(default_factory=dict)  # dedicated ones
    refused: str = ""  # the part of the spec that cannot be fulfilled
    links: Links = field(default_factory=lambda: Links(""))

    @property
    def secured(self) -> bool:
        """Whether nodes need certificates; also while TLS is added or removed."""
        return self.links.secured

    @property
    def nodes(self) -> dict[int, DesiredBroker]:
        return {**self.controllers, **self.brokers}

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""
        return ",".join(broker.clients or broker.address for broker in self.brokers.values())


def lay_out(
    resource: Resource[KafkaClusterSpec], racks: Sequence[str], known: Known
) -> ClusterLayout:
    """`racks`: the values of the topology key that the nodes of the platform have."""
    spec, refused = _as_formed(resource.spec, known.formation)
    in_use = racks_in_use(spec.racks.names, racks, known.existing)
    placement = place_brokers(spec.brokers, in_use, known.existing, known.kept)
    count = spec.controllers.replicas if spec.controllers else 0
    controllers = place_controllers(count, in_use, known.controllers)
    links = decide(spec, known.started_with)
    spec = with_links(spec, links, known.started_with.values())
    return ClusterLayout(spec, in_use, placement, controllers, links, refused)


def build(
    resource: Resource[KafkaClusterSpec],
    layout: ClusterLayout,
    known: Known,
    endpoints: Mapping[int, Endpoint],
) -> DesiredCluster:
    """`endpoints`: of all nodes of the layout, and of all others that exist."""
    spec, placement, controllers = layout.spec, layout.placement, layout.controllers
    dedicated = spec.controllers
    voters = tuple(controllers) or tuple(placement.brokers)[:VOTERS_MAX]
    formation = known.formation or voters
    shared = {
        **_replication(spec, max(spec.brokers, len(known.existing))),
        **({REGISTRATION_TIMEOUT: REGISTRATION_TIMEOUT_MS} if dedicated else {}),
        **settings_text(spec.config),
        IMAGE: spec.image or spec.version or "",
        TEMPLATE: _template(spec, spec.resources),
        RESTART: resource.annotations.get(RESTART_ANNOTATION, ""),
        **({SECRETS: known.secrets} if known.secrets else {}),
    }
    brokers = {
        broker: DesiredBroker(
            broker,
            rack,
            endpoints[broker].address,
            {
                **shared,
                **_own_settings(broker, rack, endpoints[broker]),
                **_engine(spec.engine, broker, placement, formation, endpoints, known.cluster_id),
                **security_settings(spec, layout.links, endpoints[broker].stores),
            },
            endpoints[broker].clients,
        )
        for broker, rack in placement.brokers.items()
    }
    if dedicated:
        shared[TEMPLATE] = _template(spec, dedicated.resources)
    return DesiredCluster(
        name=resource.name,
        namespace=resource.namespace,
        spec=spec,
        brokers=brokers,
        leaving=placement.leaving,
        racks=layout.racks,
        formation=formation,
        cluster_id=known.cluster_id,
        generation=resource.generation,
        refused=layout.refused,
        links=layout.links,
        controllers={
            node: _controller(node, layout, shared, formation, endpoints, known.cluster_id)
            for node in controllers
        },
    )


def _as_formed(spec: KafkaClusterSpec, formation: Sequence[int]) -> tuple[KafkaClusterSpec, str]:
    """The spec with the controllers that the cluster was formed with, and why that differs.

    The API server refuses a change, but it does not know the volumes of an earlier cluster of the
    same name.
    """
    formed = sum(map(is_controller, formation))
    wanted = spec.controllers.replicas if spec.controllers else 0
    if spec.engine != "apache" or not formation or formed == wanted:
        return spec, ""
    if not formed:
        return msgspec.structs.replace(spec, controllers=None), CONTROLLERS_FIXED
    controllers = msgspec.structs.replace(spec.controllers or Controllers(), replicas=formed)
    refused = CONTROLLER_COUNT_FIXED if spec.controllers else CONTROLLERS_FIXED
    return msgspec.structs.replace(spec, controllers=controllers), refused


def _controller(
    node: int,
    layout: ClusterLayout,
    shared: Mapping[str, str],
    formation: Sequence[int],
    endpoints: Mapping[int, Endpoint],
    cluster_id: str,
) -> DesiredBroker:
    """A controller creates topics with the brokers' defaults, so it needs their settings too."""
    own = endpoints[node]
    rack = layout.controllers[node]
    where = {b: endpoints[b].controllers for b in formation}
    engine = apache_settings(node, "", "", own.admin, formation, where, cluster_id)
    security = security_settings(layout.spec, layout.links, own.stores)
    security.pop(INTER_BROKER, None)
    settings = {**shared, **_own_settings(node, rack, own), **engine, **security}
    return DesiredBroker(node, rack, own.address, settings)


def build_topic(resource: Resource[TopicSpec]) -> DesiredTopic:
    spec = resource.spec
    return DesiredTopic(
        name=spec.name or resource.name,
        owner=resource.key,
        partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        config=settings_text(spec.config),
        delete=resource.deleting,
        retain=spec.deletion_policy == "Retain",
        adopt=spec.adopt,
    )


def accepts(cluster: Resource[KafkaClusterSpec], topic: Resource[TopicSpec]) -> bool:
    """Whether the cluster accepts Topics of this Topic's namespace."""
    allowed = cluster.spec.topic_namespaces
    return topic.namespace == cluster.namespace or "*" in allowed or topic.namespace in allowed


# -- settings --------------------------------------------------------------------------------------


def _replication(spec: KafkaClusterSpec, brokers: int) -> dict[str, str]:
    """`brokers` includes leaving ones: the default factor drops only after they are gone."""
    factor = spec.replication.factor or min(3, brokers)
    min_isr = spec.replication.min_insync_replicas or max(1, factor - 1)
    return {
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(min_isr),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(1, factor - 1)),
    }


def _own_settings(broker: int, rack: str, endpoint: Endpoint) -> dict[str, str]:
    return {
        "node.id": str(broker),
        **({"broker.rack": rack} if rack else {}),
        "listeners": endpoint.listeners,
        "advertised.listeners": endpoint.advertised,
        "log.dirs": ",".join(endpoint.log_dirs),
    }


def _engine(
    engine: str,
    broker: int,
    placement: Placement,
    formation: Sequence[int],
    endpoints: Mapping[int, Endpoint],
    cluster_id: str,
) -> dict[str, str]:
    """Settings that differ between the engines: how brokers find each other; the admin port."""
    own = endpoints[broker]
    if engine == "apache":
        controllers = {b: endpoint.controllers for b, endpoint in endpoints.items()}
        voting = [b for b in formation if b in controllers]
        return apache_settings(
            broker, own.listeners, own.advertised, own.admin, voting, controllers, cluster_id
        )
    settings = {"odradek.cluster.id": cluster_id, "odradek.admin.listener": own.admin}
    if broker in formation:
        voters = ",".join(f"{b}@{endpoints[b].address}" for b in formation if b in endpoints)
        return {**settings, "controller.quorum.voters": voters}
    # Leaving brokers too: if all racks are replaced at once, only they know the quorum.
    others = [b for b in (*placement.brokers, *placement.leaving) if b != broker]
    servers = ",".join(endpoints[b].address for b in others if b in endpoints)
    return {**settings, "controller.quorum.bootstrap.servers": servers}


def _template(spec: KafkaClusterSpec, resources: Resources) -> str:
    """A short hash of resources and pod template, which only matter on Kubernetes."""
    parts = (resources, spec.pod_template)
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:12]
