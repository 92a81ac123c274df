"""KafkaCluster: some brokers in some racks, their storage, settings and how they are rolled.

apiVersion: odradek.dev/v1alpha1
kind: KafkaCluster
metadata: {name: main}
spec:
  brokers: 6
  racks: {names: [a, b, c]}          # left out: from the labels of the nodes
  storage: {size: 20Gi}
  config: {log.retention.hours: 24}
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import (
    AS_SET,
    Condition,
    DnsLabel,
    Factor,
    FreeForm,
    NonEmpty,
    Port,
    Quantity,
    Rule,
    Settings,
    Spec,
    Status,
    quantity_bytes,
)

# Settings that the operator computes; a user's value would contradict the spec.
RESERVED_SETTINGS = {
    "node.id": "broker ids are given by the operator",
    "broker.id": "broker ids are given by the operator",
    "broker.rack": "set spec.racks",
    "log.dirs": "set spec.storage.volumes",
    "log.dir": "set spec.storage.volumes",
    "listeners": "set spec.listeners",
    "advertised.listeners": "set spec.listeners",
    "inter.broker.listener.name": "set spec.listeners",
    "listener.security.protocol.map": "set spec.listeners",
    "controller.quorum.voters": "the operator knows the voters",
    "controller.quorum.bootstrap.servers": "the operator knows the brokers",
    "process.roles": "the operator gives the roles",
    "controller.listener.names": "set spec.listeners",
    "odradek.cluster.id": "the operator keeps the id",
    "odradek.admin.listener": "set spec.metrics.port",
    "default.replication.factor": "set spec.replication.factor",
    "min.insync.replicas": "set spec.replication.minInsyncReplicas",
}

CONTROLLER_PORT = 9093  # of engine apache on Kubernetes, between its brokers only
RACKS_MAX = 100
BROKERS_MAX = 1000
CONTROLLERS_MAX = 7
APART_OR_NOT = (
    "controllers are apart from the beginning or never: make a new cluster and move there with "
    "odradek migrate"
)
SAME_NUMBER = "the number of controllers never changes"


class Racks(Spec, frozen=True, kw_only=True):
    topology_key: Annotated[
        str, Meta(min_length=1, description="Node label whose values are the racks.")
    ] = "topology.kubernetes.io/zone"
    names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=63)]],
        Meta(
            max_length=RACKS_MAX,
            description="The racks to use, in this order; left out: all that nodes have.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)


class Storage(Spec, frozen=True, kw_only=True):
    size: Annotated[Quantity, Meta(description="Size of each volume; it grows, never shrinks.")] = (
        "10Gi"
    )
    class_name: Annotated[
        str | None, Meta(description="StorageClass; left out: the default one.")
    ] = field(name="class", default=None)
    volumes: Annotated[
        int, Meta(ge=1, le=16, description="Volumes of each broker, one log directory on each.")
    ] = 1
    deletion_policy: Annotated[
        Literal["Retain", "Delete"],
        Meta(description="What becomes of the volumes of removed brokers and clusters."),
    ] = "Retain"


class Replication(Spec, frozen=True, kw_only=True):
    factor: Annotated[
        Factor | None, Meta(description="Of topics that do not say; left out: 3, or all brokers.")
    ] = None
    min_insync_replicas: Annotated[
        Factor | None, Meta(description="Left out: one less than the factor, at least 1.")
    ] = None


class ExternalBroker(Spec, frozen=True, kw_only=True):
    id: Annotated[int, Meta(ge=0)]
    host: Annotated[str, Meta(min_length=1, description="What clients are told.")]
    port: Port | None = None
    node_port: Port | None = None


class External(Spec, frozen=True, kw_only=True):
    type: Literal["NodePort", "LoadBalancer"] = "NodePort"
    port: Port = 9094
    brokers: Annotated[
        list[ExternalBroker],
        Meta(max_length=BROKERS_MAX, description="Addresses of single brokers, where they differ."),
    ] = field(default_factory=list)
    annotations: FreeForm = field(default_factory=dict)


class Listeners(Spec, frozen=True, kw_only=True):
    port: Annotated[
        Port, Meta(description="Inside Kubernetes: clients, brokers and controller.")
    ] = 9092
    external: External | None = None


class Resources(Spec, frozen=True, kw_only=True):
    requests: FreeForm = field(default_factory=dict)
    limits: FreeForm = field(default_factory=dict)


class PodTemplate(Spec, frozen=True, kw_only=True):
    """What is laid over the pods that the operator makes."""

    labels: FreeForm = field(default_factory=dict)
    annotations: FreeForm = field(default_factory=dict)
    node_selector: FreeForm = field(default_factory=dict)
    tolerations: Annotated[list[FreeForm], Meta(max_length=50)] = field(default_factory=list)
    affinity: FreeForm = field(default_factory=dict)
    security_context: FreeForm = field(default_factory=dict)
    image_pull_secrets: Annotated[list[str], Meta(max_length=20)] = field(default_factory=list)
    priority_class_name: str | None = None
    termination_grace_period_seconds: Annotated[int, Meta(ge=1)] = 60
    env: FreeForm = field(default_factory=dict)
    volumes: Annotated[
        list[FreeForm],
        Meta(max_length=20, description="Beside ours; a Secret that changes is rolled out."),
    ] = field(default_factory=list)
    volume_mounts: Annotated[list[FreeForm], Meta(max_length=20)] = field(default_factory=list)


class ControllerStorage(Spec, frozen=True, kw_only=True):
    size: Annotated[Quantity, Meta(description="Size of the volume; it grows, never shrinks.")] = (
        "5Gi"
    )
    class_name: Annotated[
        str | None, Meta(description="StorageClass; left out: the default one.")
    ] = field(name="class", default=None)


class Controllers(Spec, frozen=True, kw_only=True):
    """Nodes that only vote about the metadata; engine apache."""

    replicas: Annotated[
        int, Meta(ge=1, le=CONTROLLERS_MAX, description="An odd number that never changes.")
    ] = 3
    storage: ControllerStorage = field(default_factory=ControllerStorage)
    resources: Resources = field(default_factory=Resources)


class Rolling(Spec, frozen=True, kw_only=True):
    max_unavailable: Annotated[
        int,
        Meta(
            ge=1,
            le=BROKERS_MAX,
            description="Brokers of one rack that may restart together if they share no partition.",
        ),
    ] = 1
    min_ready_seconds: Annotated[
        int, Meta(ge=0, le=3600, description="How long a broker is ready before the next goes.")
    ] = 0
    preferred_leaders: Annotated[
        bool, Meta(description="Give leaders back before the next broker goes.")
    ] = True


class Metrics(Spec, frozen=True, kw_only=True):
    port: Annotated[Port, Meta(description="Of /metrics, /healthz and /readyz.")] = 9404


class NetworkPolicy(Spec, frozen=True, kw_only=True):
    enabled: bool = False
    namespaces: Annotated[
        list[DnsLabel], Meta(max_length=100, description="Other namespaces with clients.")
    ] = field(default_factory=list)


class KafkaClusterSpec(Spec, frozen=True, kw_only=True):
    engine: Annotated[
        Literal["embedded", "apache"],
        Meta(description="Our broker, or Apache Kafka in KRaft mode. Never changes."),
    ] = "embedded"
    version: NonEmpty | None = None
    image: NonEmpty | None = None
    brokers: Annotated[int, Meta(ge=1, le=BROKERS_MAX)] = 3
    controllers: Annotated[
        Controllers | None,
        Meta(description="Engine apache: controllers apart; left out: brokers do it beside."),
    ] = None
    racks: Racks = field(default_factory=Racks)
    storage: Storage = field(default_factory=Storage)
    replication: Replication = field(default_factory=Replication)
    config: Annotated[Settings, Meta(description="Any broker setting of Kafka's.")] = field(
        default_factory=dict
    )
    listeners: Listeners = field(default_factory=Listeners)
    resources: Resources = field(default_factory=Resources)
    pod_template: PodTemplate = field(default_factory=PodTemplate)
    rolling: Rolling = field(default_factory=Rolling)
    rebalance: Annotated[
        Literal["manual", "auto"],
        Meta(description="auto: move replicas that share a rack, and onto new brokers."),
    ] = "manual"
    metrics: Metrics = field(default_factory=Metrics)
    network_policy: NetworkPolicy = field(default_factory=NetworkPolicy)
    topic_namespaces: Annotated[
        list[Annotated[str, Meta(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]],
        Meta(
            max_length=100,
            description="Other namespaces whose Topics are accepted; * for all.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)
    pause: Annotated[bool, Meta(description="The operator looks and changes nothing.")] = False


CLUSTER_RULES = (
    Rule(
        "!has(self.replication.factor) || self.replication.factor <= self.brokers",
        "a replication factor larger than the number of brokers cannot be reached",
        "replication.factor",
        lambda new, _: (new.replication.factor or 1) <= new.brokers,
    ),
    Rule(
        "!has(self.replication.minInsyncReplicas) || self.replication.minInsyncReplicas <= "
        "(has(self.replication.factor) ? self.replication.factor : "
        "(self.brokers < 3 ? self.brokers : 3))",
        "more in-sync replicas than replicas: no write with acks=all would ever be accepted",
        "replication.minInsyncReplicas",
        lambda new, _: (
            (new.replication.min_insync_replicas or 1)
            <= (new.replication.factor or min(3, new.brokers))
        ),
    ),
    Rule(
        "",
        "a rack is named twice",
        "racks.names",
        lambda new, _: len(set(new.racks.names)) == len(new.racks.names),
    ),
    Rule(
        "self.listeners.port != self.metrics.port && (!has(self.listeners.external) || "
        "(self.listeners.external.port != self.listeners.port && "
        "self.listeners.external.port != self.metrics.port))",
        "two listeners cannot share a port",
        "listeners",
        lambda new, _: len(set(_ports(new))) == len(_ports(new)),
    ),
    Rule(
        f"self.engine != 'apache' || (self.listeners.port != {CONTROLLER_PORT} && "
        f"self.metrics.port != {CONTROLLER_PORT} && (!has(self.listeners.external) || "
        f"self.listeners.external.port != {CONTROLLER_PORT}))",
        f"port {CONTROLLER_PORT} is where the controllers of engine apache talk: listeners.port, "
        "listeners.external.port and metrics.port are others",
        "listeners",
        lambda new, _: new.engine != "apache" or CONTROLLER_PORT not in _ports(new),
    ),
    Rule(
        "self.engine == oldSelf.engine",
        "the engine of a cluster never changes: make a new one and move there with odradek migrate",
        "engine",
        lambda new, old: old is None or new.engine == old.engine,
    ),
    Rule(
        "!has(self.controllers) || self.engine == 'apache'",
        "controllers apart are for engine apache: our own brokers vote about the metadata beside",
        "controllers",
        lambda new, _: new.controllers is None or new.engine == "apache",
    ),
    Rule(
        "!has(self.controllers) || self.controllers.replicas % 2 == 1",
        "an even number of controllers survives no more failures than one fewer would",
        "controllers.replicas",
        lambda new, _: new.controllers is None or new.controllers.replicas % 2 == 1,
    ),
    Rule(
        "has(self.controllers) == has(oldSelf.controllers)",
        APART_OR_NOT,
        "controllers",
        lambda new, old: old is None or (new.controllers is None) == (old.controllers is None),
    ),
    Rule(
        "!has(self.controllers) || !has(oldSelf.controllers) || "
        "self.controllers.replicas == oldSelf.controllers.replicas",
        SAME_NUMBER,
        "controllers.replicas",
        lambda new, old: (
            old is None
            or new.controllers is None
            or old.controllers is None
            or new.controllers.replicas == old.controllers.replicas
        ),
    ),
    Rule(
        "!has(self.controllers) || !has(oldSelf.controllers) || "
        "quantity(self.controllers.storage.size).compareTo("
        "quantity(oldSelf.controllers.storage.size)) >= 0",
        "storage grows, it never shrinks",
        "controllers.storage.size",
        lambda new, old: (
            old is None
            or new.controllers is None
            or old.controllers is None
            or quantity_bytes(new.controllers.storage.size)
            >= quantity_bytes(old.controllers.storage.size)
        ),
    ),
    Rule(
        "quantity(self.storage.size).compareTo(quantity(oldSelf.storage.size)) >= 0",
        "storage grows, it never shrinks",
        "storage.size",
        lambda new, old: (
            old is None or quantity_bytes(new.storage.size) >= quantity_bytes(old.storage.size)
        ),
    ),
    Rule(
        "self.storage.volumes >= oldSelf.storage.volumes",
        "volumes are added, never taken away",
        "storage.volumes",
        lambda new, old: old is None or new.storage.volumes >= old.storage.volumes,
    ),
)


def _ports(spec: KafkaClusterSpec) -> list[int]:
    external = spec.listeners.external
    return [spec.listeners.port, spec.metrics.port, *([external.port] if external else [])]


# -- status ----------------------------------------------------------------------------------------


class BrokerStatus(Status, frozen=True, kw_only=True):
    id: int
    rack: str = ""
    ready: bool = False
    leaders: int = 0
    preferred_leaders: int = 0
    under_replicated: int = 0
    pending: str = ""  # why it will be restarted, drained or removed
    not_ready: str = ""  # why it is not ready, as far as it is known


class DiskStatus(Status, frozen=True, kw_only=True):
    """A log directory that is short of room or failed."""

    broker: int
    directory: str = ""  # empty: the broker ended; its message names the directory
    state: str  # Low, Offline, Ended
    since: str = ""
    message: str = ""


class ControllerStatus(Status, frozen=True, kw_only=True):
    """A controller apart; of brokers that vote beside, nothing is said here."""

    id: int
    rack: str = ""
    ready: bool = False
    active: bool = False
    pending: str = ""  # why it will be restarted


class RollingStatus(Status, frozen=True, kw_only=True):
    """What a roll does or waits for: which brokers, which partition, since when."""

    state: str  # Waiting, Restarting, Electing
    brokers: list[int] = field(default_factory=list)
    partition: str = ""
    reason: str = ""
    since: str = ""
    unavailable: list[str] = field(default_factory=list)  # one replica only: away meanwhile
    remaining: list[int] = field(default_factory=list)


class KafkaClusterStatus(Status, frozen=True, kw_only=True):
    observed_generation: int = 0
    conditions: list[Condition] = field(default_factory=list)
    cluster_id: str = ""
    bootstrap_servers: str = ""
    brokers: list[BrokerStatus] = field(default_factory=list)
    controllers: list[ControllerStatus] = field(default_factory=list)
    broker_count: int = 0
    ready_brokers: int = -1  # a default is left out when it is written, and 0 should be seen
    selector: str = ""
    controller: int = -1
    formation: list[int] = field(default_factory=list)  # the brokers that formed the cluster
    dynamic_config: list[str] = field(default_factory=list)  # settings that the operator altered
    rolling: RollingStatus | None = None
    disks: list[DiskStatus] = field(default_factory=list)  # only those that need attention
    topics: int = 0
    partitions: int = 0
    preferred_leaders_percent: int = -1
