"""spec → desired, without looking at the world: brokers with all their settings, and topics.

`Known` is what must survive a restart of the operator (which ids exist, who formed the cluster),
`Site` says where a broker listens and keeps its data: pod names on Kubernetes, ports and
directories on this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from odradek_api.base import RESTART_ANNOTATION, Resource, settings_text
from odradek_api.kafka_cluster.pods import Resources
from odradek_api.kafka_cluster.rules import CONTROLLER_COUNT_FIXED, CONTROLLERS_FIXED
from odradek_api.kafka_cluster.spec import Controllers, KafkaClusterSpec
from odradek_api.topic import TopicSpec
from odradek_operator.kafka.apache import FORMAT, apache_settings
from odradek_operator.kafka.placement import (
    Placement,
    is_controller,
    place_brokers,
    place_controllers,
    racks_in_use,
)

VOTERS_MAX = 3
# How a broker finds the others at its first start; later it knows them from its own disk. A
# change here (a broker more, a broker less) is never worth a restart.
DISCOVERY_SETTINGS = frozenset(
    {"controller.quorum.voters", "controller.quorum.bootstrap.servers", FORMAT}
)
# Brokers begin together with controllers that are apart, and end if none answers for so long: a
# minute is Kafka's default, and too short for a busy machine.
PATIENCE, PATIENCE_MS = "initial.broker.registration.timeout.ms", "300000"
# What is not a setting of Kafka's but needs a restart like one; these never reach the broker.
TEMPLATE, IMAGE, RESTART, SECRETS = "@template", "@image", "@restart", "@secrets"


@dataclass(frozen=True)
class Endpoint:
    """Where one broker is found. `address` is host:port of the inter-broker listener.

    Of a controller apart there is only `controller`, and its address is that.
    """

    address: str
    listeners: str
    advertised: str
    admin: str
    log_dirs: tuple[str, ...]
    controller: str = ""  # host:port of the controller listener, which only engine apache has


class Site(Protocol):
    def endpoints(
        self, brokers: Mapping[int, str], spec: KafkaClusterSpec
    ) -> Mapping[int, Endpoint]:
        """Of these nodes (id → rack), all that should be there, and of all that ever were."""


@dataclass(frozen=True)
class Known:
    existing: Mapping[int, str] = field(default_factory=dict)  # broker → rack
    kept: Mapping[int, str] = field(default_factory=dict)  # volumes of brokers that are gone
    formation: tuple[int, ...] = ()  # the nodes that formed the cluster; empty: none yet
    cluster_id: str = ""
    controllers: Mapping[int, str] = field(default_factory=dict)  # apart: id → rack
    secrets: str = ""  # a hash of the Secrets that its pods mount


@dataclass(frozen=True)
class DesiredBroker:
    id: int
    rack: str
    address: str
    settings: Mapping[str, str]  # Kafka's, and those that begin with @

    @property
    def properties(self) -> dict[str, str]:
        """What the broker itself is told."""
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
    controllers: Mapping[int, DesiredBroker] = field(default_factory=dict)  # apart; or none
    refused: str = ""  # what of the spec cannot be

    @property
    def nodes(self) -> dict[int, DesiredBroker]:
        return {**self.controllers, **self.brokers}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())


def build(
    resource: Resource[KafkaClusterSpec], racks: Sequence[str], known: Known, site: Site
) -> DesiredCluster:
    spec, refused = _as_formed(resource.spec, known.formation)
    in_use = racks_in_use(spec.racks.names, racks, known.existing)
    placement = place_brokers(spec.brokers, in_use, known.existing, known.kept)
    apart = spec.controllers
    controllers = place_controllers(apart.replicas, in_use, known.controllers) if apart else {}
    voters = tuple(controllers) or tuple(placement.brokers)[:VOTERS_MAX]
    formation = known.formation or voters
    shared = {
        **_replication(spec, max(spec.brokers, len(known.existing))),
        **({PATIENCE: PATIENCE_MS} if apart else {}),
        **settings_text(spec.config),
        IMAGE: spec.image or spec.version or "",
        TEMPLATE: _template(spec, spec.resources),
        RESTART: resource.annotations.get(RESTART_ANNOTATION, ""),
        **({SECRETS: known.secrets} if known.secrets else {}),
    }
    endpoints = site.endpoints({**placement.brokers, **controllers}, spec)
    brokers = {
        broker: DesiredBroker(
            broker,
            rack,
            endpoints[broker].address,
            {
                **shared,
                **_own_settings(broker, rack, endpoints[broker]),
                **_engine(spec.engine, broker, placement, formation, endpoints, known.cluster_id),
            },
        )
        for broker, rack in placement.brokers.items()
    }
    if apart:
        shared[TEMPLATE] = _template(spec, apart.resources)
    return DesiredCluster(
        name=resource.name,
        namespace=resource.namespace,
        spec=spec,
        brokers=brokers,
        leaving=placement.leaving,
        racks=in_use,
        formation=formation,
        cluster_id=known.cluster_id,
        generation=resource.generation,
        refused=refused,
        controllers={
            node: _controller(node, rack, shared, formation, endpoints, known.cluster_id)
            for node, rack in controllers.items()
        },
    )


def _as_formed(spec: KafkaClusterSpec, formation: Sequence[int]) -> tuple[KafkaClusterSpec, str]:
    """A cluster stays as it was formed, with controllers apart or without; and why that is not
    what the spec says, if it is not.

    The API server refuses a change, but cannot see volumes of an earlier cluster.
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
    rack: str,
    shared: Mapping[str, str],
    formation: Sequence[int],
    endpoints: Mapping[int, Endpoint],
    cluster_id: str,
) -> DesiredBroker:
    """It makes topics with the defaults of the brokers, so it is told them, too."""
    own = endpoints[node]
    where = {b: endpoints[b].controller for b in formation}
    engine = apache_settings(node, "", "", own.admin, formation, where, cluster_id)
    settings = {**shared, **_own_settings(node, rack, own), **engine}
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
    """Whether the cluster lets this Topic's namespace have topics."""
    allowed = cluster.spec.topic_namespaces
    return topic.namespace == cluster.namespace or "*" in allowed or topic.namespace in allowed


# -- settings --------------------------------------------------------------------------------------


def _replication(spec: KafkaClusterSpec, brokers: int) -> dict[str, str]:
    """`brokers` counts those that leave too: the default drops when they have gone, not before."""
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
    """What differs between the engines: how a broker finds the others, and how it is asked."""
    own = endpoints[broker]
    if engine == "apache":
        controllers = {b: endpoint.controller for b, endpoint in endpoints.items()}
        voting = [b for b in formation if b in controllers]
        return apache_settings(
            broker, own.listeners, own.advertised, own.admin, voting, controllers, cluster_id
        )
    settings = {"odradek.cluster.id": cluster_id, "odradek.admin.listener": own.admin}
    if broker in formation:
        voters = ",".join(f"{b}@{endpoints[b].address}" for b in formation if b in endpoints)
        return {**settings, "controller.quorum.voters": voters}
    # Those that leave too: when all racks are exchanged, only they know the quorum.
    others = [b for b in (*placement.brokers, *placement.leaving) if b != broker]
    servers = ",".join(endpoints[b].address for b in others if b in endpoints)
    return {**settings, "controller.quorum.bootstrap.servers": servers}


def _template(spec: KafkaClusterSpec, resources: Resources) -> str:
    """A short hash of what a pod is made of; the local runtime ignores resources and pods."""
    parts = (resources, spec.pod_template)
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:12]
