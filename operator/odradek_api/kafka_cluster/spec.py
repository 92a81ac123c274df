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
    FreeForm,
    NonEmpty,
    Port,
    Quantity,
    Settings,
    Spec,
)
from odradek_api.kafka_cluster.pods import PodTemplate, Resources

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

CONTROLLER_PORT = 9093  # of engine apache on Kubernetes, between its nodes only
RACKS_MAX = 100
BROKERS_MAX = 1000
CONTROLLERS_MAX = 7


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


class ExternalBroker(Spec, frozen=True, kw_only=True):
    """Address of one broker for clients outside Kubernetes."""

    id: Annotated[int, Meta(ge=0, description="Id of the broker, for example 0.")]
    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Host name or IP that the broker advertises to external clients, for "
            "example kafka-0.example.com.",
        ),
    ]
    port: Annotated[
        Port | None,
        Meta(
            description="Port that the broker advertises to external clients. Default: the node "
            "port (type NodePort) or listeners.external.port (type LoadBalancer)."
        ),
    ] = None
    node_port: Annotated[
        Port | None,
        Meta(description="Node port of the broker's Service. Default: Kubernetes chooses one."),
    ] = None


class External(Spec, frozen=True, kw_only=True):
    """A listener for clients outside Kubernetes, with one Service per broker."""

    type: Annotated[
        Literal["NodePort", "LoadBalancer"],
        Meta(description="Type of the Services. Default: NodePort."),
    ] = "NodePort"
    port: Annotated[
        Port, Meta(description="Port of the external listener in the pods. Default: 9094.")
    ] = 9094
    brokers: Annotated[
        list[ExternalBroker],
        Meta(
            max_length=BROKERS_MAX,
            description="Addresses of single brokers, where they differ from the node's address "
            "or the load balancer's. Default: none.",
        ),
    ] = field(default_factory=list)
    annotations: Annotated[
        FreeForm,
        Meta(
            description="Annotations of the Services, for example for a cloud's load balancer. "
            "Default: none."
        ),
    ] = field(default_factory=dict)


class Listeners(Spec, frozen=True, kw_only=True):
    """Where brokers accept connections."""

    port: Annotated[
        Port,
        Meta(
            description="Port of the listener inside Kubernetes, for clients and for replication "
            "between brokers. Default: 9092."
        ),
    ] = 9092
    external: Annotated[
        External | None,
        Meta(
            description="Listener for clients outside Kubernetes. Default: none; the cluster is "
            "reachable only from inside."
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
    listeners: Annotated[
        Listeners,
        Meta(description="Where brokers accept connections. Default: port 9092, inside only."),
    ] = field(default_factory=Listeners)
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
    pause: Annotated[
        bool,
        Meta(
            description="If true, the operator observes the cluster, updates its status and "
            "changes nothing else. Default: false."
        ),
    ] = False
