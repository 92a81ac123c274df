"""The spec of a KafkaCluster: brokers in racks, their storage, settings and rolling restarts.

apiVersion: odradek.dev/v1alpha1
kind: KafkaCluster
metadata: {name: main}
spec:
  brokers: 6
  racks: {names: [a, b, c]}          # default: the zones of the nodes
  storage: {size: 20Gi}
  config: {log.retention.hours: 24}

Rules between fields are in rules.py. Every field has a description: the CRD, `kubectl explain` and
the reference in docs/ show it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import (
    AS_SET,
    DnsLabel,
    Factor,
    NonEmpty,
    Port,
    Quantity,
    Settings,
    Spec,
)
from odradek_api.kafka_cluster.limits import BROKERS_MAX
from odradek_api.kafka_cluster.listeners import (
    DEPRECATED,
    Listener,
    ListenerMapping,
    listener_list,
)
from odradek_api.kafka_cluster.pods import PodTemplate, Resources
from odradek_api.kafka_cluster.security import Certificates

# Settings that the operator computes; a user's value would contradict the spec.
RESERVED_SETTINGS = {
    "node.id": "the operator assigns broker ids",
    "broker.id": "the operator assigns broker ids",
    "broker.rack": "set spec.racks",
    "log.dirs": "set spec.storage.volumes",
    "log.dir": "set spec.storage.volumes",
    "listeners": "set spec.listeners",
    "advertised.listeners": "set spec.listeners",
    "inter.broker.listener.name": "set spec.listeners",
    "listener.security.protocol.map": "set spec.listeners",
    "controller.quorum.voters": "the operator manages the voters",
    "controller.quorum.bootstrap.servers": "the operator computes the addresses",
    "process.roles": "the operator assigns the roles",
    "controller.listener.names": "set spec.listeners",
    "odradek.cluster.id": "the operator assigns the cluster id",
    "odradek.admin.listener": "set spec.metrics.port",
    "default.replication.factor": "set spec.replication.factor",
    "min.insync.replicas": "set spec.replication.minInsyncReplicas",
}

RACKS_MAX = 100
CONTROLLERS_MAX = 7
# Of a cluster with TLS, in addition: the operator renders them from spec.listeners.
SECURED_SETTINGS = ("listener.name.", "ssl.", "authorizer.class.name", "security.inter.broker.")


class Racks(Spec, frozen=True, kw_only=True):
    """How brokers are spread over failure domains. Default: one rack per zone of the nodes."""

    topology_key: Annotated[
        str,
        Meta(
            min_length=1,
            description="Label of the Kubernetes nodes whose values are the racks. Default: "
            "topology.kubernetes.io/zone.",
        ),
    ] = "topology.kubernetes.io/zone"
    names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=63)]],
        Meta(
            max_length=RACKS_MAX,
            description="The racks to use, filled in this order. Default: every value of "
            "topologyKey that the nodes have. Example: [eu-west-1a, eu-west-1b].",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)


class Storage(Spec, frozen=True, kw_only=True):
    """Persistent volumes of the brokers."""

    size: Annotated[
        Quantity,
        Meta(
            description="Size of each volume, as a Kubernetes quantity. It can grow, never shrink. "
            "Default: 10Gi."
        ),
    ] = "10Gi"
    class_name: Annotated[
        str | None,
        Meta(
            description="StorageClass of the volumes. Default: the cluster's default StorageClass."
        ),
    ] = field(name="class", default=None)
    volumes: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description="Volumes per broker; each one holds one log directory. Volumes can be "
            "added, never removed. Default: 1.",
        ),
    ] = 1
    deletion_policy: Annotated[
        Literal["Retain", "Delete"],
        Meta(
            description="What happens to the volumes when a broker is removed or the KafkaCluster "
            "is deleted. Retain keeps them, so that a cluster of the same name can be created "
            "from them. Default: Retain."
        ),
    ] = "Retain"


class Replication(Spec, frozen=True, kw_only=True):
    """Replication defaults of new topics and of Kafka's internal topics."""

    factor: Annotated[
        Factor | None,
        Meta(
            description="Replicas of a topic that does not set its own replication factor "
            "(default.replication.factor). Default: 3, or the number of brokers if there are "
            "fewer."
        ),
    ] = None
    min_insync_replicas: Annotated[
        Factor | None,
        Meta(
            description="In-sync replicas that a write with acks=all needs (min.insync.replicas). "
            "Default: replication.factor - 1, at least 1."
        ),
    ] = None


class ControllerStorage(Spec, frozen=True, kw_only=True):
    """Persistent volume of a dedicated controller, for the metadata log."""

    size: Annotated[
        Quantity,
        Meta(
            description="Size of the volume, as a Kubernetes quantity. It can grow, never shrink. "
            "Default: 5Gi."
        ),
    ] = "5Gi"
    class_name: Annotated[
        str | None,
        Meta(
            description="StorageClass of the volume. Default: the cluster's default StorageClass."
        ),
    ] = field(name="class", default=None)


class Controllers(Spec, frozen=True, kw_only=True):
    """Dedicated controllers: nodes that vote in the metadata quorum and hold no partitions."""

    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=CONTROLLERS_MAX,
            description="Number of dedicated controllers. It must be odd and cannot change later. "
            "Default: 3.",
        ),
    ] = 3
    storage: Annotated[
        ControllerStorage,
        Meta(description="Persistent volume of each controller. Default: 5Gi."),
    ] = field(default_factory=ControllerStorage)
    resources: Annotated[
        Resources,
        Meta(description="CPU and memory of the controllers' containers. Default: none."),
    ] = field(default_factory=Resources)


class Rolling(Spec, frozen=True, kw_only=True):
    """How brokers are restarted when a change needs it. The ISR rules always apply."""

    max_unavailable: Annotated[
        int,
        Meta(
            ge=1,
            le=BROKERS_MAX,
            description="How many brokers of one rack may restart at the same time, if they have "
            "no partition in common. Default: 1.",
        ),
    ] = 1
    min_ready_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=3600,
            description="Seconds that a restarted broker must stay ready before the next one is "
            "restarted. Default: 0.",
        ),
    ] = 0
    preferred_leaders: Annotated[
        bool,
        Meta(
            description="Elect the preferred leaders before the next broker is restarted. Default: "
            "true."
        ),
    ] = True


class Metrics(Spec, frozen=True, kw_only=True):
    """Metrics and health endpoints of the brokers."""

    port: Annotated[
        Port, Meta(description="Port of /metrics, /healthz and /readyz. Default: 9404.")
    ] = 9404


class NetworkPolicy(Spec, frozen=True, kw_only=True):
    """A NetworkPolicy that restricts who can connect to the brokers."""

    enabled: Annotated[
        bool,
        Meta(
            description="Create the NetworkPolicy: the client listener is then reachable from this "
            "namespace and from `namespaces` only; the external listener and the metrics port "
            "stay reachable from everywhere. Default: false."
        ),
    ] = False
    namespaces: Annotated[
        list[DnsLabel],
        Meta(
            max_length=100,
            description="Other namespaces whose pods may connect as clients. Default: none.",
        ),
    ] = field(default_factory=list)


class KafkaClusterSpec(Spec, frozen=True, kw_only=True):
    """The desired state of the cluster."""

    engine: Annotated[
        Literal["embedded", "apache"],
        Meta(
            description="Which broker runs: embedded is Odradek's own broker, apache is Apache "
            "Kafka in KRaft mode. It cannot change later. Default: embedded."
        ),
    ] = "embedded"
    version: Annotated[
        NonEmpty | None,
        Meta(
            description="Tag of the operator's default image for the engine, for example 4.3.1. "
            "Default: the tag that the operator was installed with. Ignored if `image` is set."
        ),
    ] = None
    image: Annotated[
        NonEmpty | None,
        Meta(
            description="Container image of brokers and controllers. Default: the operator's "
            "default image for the engine."
        ),
    ] = None
    brokers: Annotated[
        int,
        Meta(
            ge=1,
            le=BROKERS_MAX,
            description="Number of brokers. Brokers that are removed are drained first. Default: "
            "3.",
        ),
    ] = 3
    controllers: Annotated[
        Controllers | None,
        Meta(
            description="Dedicated controllers, for engine apache only. Default: none; up to three "
            "brokers are controllers too. It cannot be added or removed later."
        ),
    ] = None
    racks: Annotated[
        Racks,
        Meta(
            description="How brokers are spread over failure domains. Default: one rack per zone "
            "of the nodes."
        ),
    ] = field(default_factory=Racks)
    storage: Annotated[
        Storage, Meta(description="Persistent volumes of the brokers. Default: one of 10Gi each.")
    ] = field(default_factory=Storage)
    replication: Annotated[
        Replication,
        Meta(
            description="Replication defaults of new topics. Default: 3 replicas, of which 2 must "
            "be in sync."
        ),
    ] = field(default_factory=Replication)
    config: Annotated[
        Settings,
        Meta(
            description="Broker settings by Kafka's names, for example {log.retention.hours: 24}. "
            "Settings that Kafka can change at run time are applied without a restart. "
            "Default: none."
        ),
    ] = field(default_factory=dict)
    security: Annotated[
        Literal["open", "strict"],
        Meta(
            description="strict refuses listeners without TLS and without authentication, so that "
            "every client has to authenticate and needs ACLs; open accepts them. Default: open."
        ),
    ] = "open"
    listeners: Annotated[
        list[Listener] | ListenerMapping | None,
        Meta(
            description="Where brokers accept connections, as a list. The mapping {port, external} "
            "of earlier versions is deprecated. Default: one listener on port 9092 inside "
            "Kubernetes; with security strict it has TLS and SCRAM-SHA-512."
        ),
    ] = None
    certificates: Annotated[
        Certificates,
        Meta(
            description="How long certificates are valid and when they are renewed. It has an "
            "effect if a listener has TLS. Default: one year, renewed 30 days before."
        ),
    ] = field(default_factory=Certificates)
    resources: Annotated[
        Resources, Meta(description="CPU and memory of the brokers' containers. Default: none.")
    ] = field(default_factory=Resources)
    pod_template: Annotated[
        PodTemplate,
        Meta(description="Additions to the pods of brokers and controllers. Default: none."),
    ] = field(default_factory=PodTemplate)
    rolling: Annotated[
        Rolling,
        Meta(description="How brokers are restarted when a change needs it. Default: one by one."),
    ] = field(default_factory=Rolling)
    rebalance: Annotated[
        Literal["manual", "auto"],
        Meta(
            description="auto moves replicas so that no two of a partition share a rack, and onto "
            "brokers that hold fewer replicas than others; manual moves nothing unless a broker "
            "is drained. Default: manual."
        ),
    ] = "manual"
    metrics: Annotated[
        Metrics, Meta(description="Metrics and health endpoints. Default: port 9404.")
    ] = field(default_factory=Metrics)
    network_policy: Annotated[
        NetworkPolicy,
        Meta(description="Restricts who can connect to the brokers. Default: not restricted."),
    ] = field(default_factory=NetworkPolicy)
    topic_namespaces: Annotated[
        list[Annotated[str, Meta(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]],
        Meta(
            max_length=100,
            description="Other namespaces whose Topics are accepted; * accepts all. Default: only "
            "Topics of this namespace.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)
    user_namespaces: Annotated[
        list[Annotated[str, Meta(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]],
        Meta(
            max_length=100,
            description="Other namespaces whose KafkaUsers are accepted, and to which KafkaUsers "
            "may write their Secrets; * accepts all. A KafkaUser grants itself any ACL, so list "
            "only namespaces whose users may administer this cluster. Default: only KafkaUsers of "
            "this namespace.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)
    pause: Annotated[
        bool,
        Meta(
            description="If true, the operator observes the cluster, updates its status and "
            "changes nothing else. Default: false."
        ),
    ] = False

    @property
    def listener_list(self) -> tuple[Listener, ...]:
        """The listeners, whichever form the manifest has."""
        return listener_list(self.listeners, strict=self.security == "strict")

    @property
    def deprecated(self) -> str:
        """Which deprecated form the manifest uses and what to write instead; else empty."""
        return DEPRECATED if isinstance(self.listeners, ListenerMapping) else ""

    @property
    def client_listener(self) -> Listener:
        """The first listener for clients inside Kubernetes."""
        return next(one for one in self.listener_list if one.type == "internal")

    @property
    def external_listeners(self) -> tuple[Listener, ...]:
        return tuple(one for one in self.listener_list if one.type != "internal")

    @property
    def secured(self) -> bool:
        """Whether brokers talk to each other over mTLS, on a listener of their own."""
        return any(one.tls for one in self.listener_list)

    @property
    def authorized(self) -> bool:
        """Whether ACLs are checked."""
        return any(one.authentication.type != "none" for one in self.listener_list)
