"""The status of a KafkaCluster, as the operator reports it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from odradek_api.base import Condition, Status


class BrokerStatus(Status, frozen=True, kw_only=True):
    """One broker."""

    id: Annotated[int, Meta(description="Broker id (node.id).")]
    rack: Annotated[str, Meta(description="Rack of the broker; empty if there are no racks.")] = ""
    ready: Annotated[bool, Meta(description="Whether the broker serves clients.")] = False
    leaders: Annotated[int, Meta(description="Partitions that the broker leads.")] = 0
    preferred_leaders: Annotated[
        int, Meta(description="Partitions whose preferred leader is this broker.")
    ] = 0
    under_replicated: Annotated[
        int, Meta(description="Replicas on this broker that are not in sync.")
    ] = 0
    pending: Annotated[
        str,
        Meta(
            description="Why the broker is going to be restarted, or `leaving` if it is going to "
            "be removed; empty otherwise."
        ),
    ] = ""
    not_ready: Annotated[
        str, Meta(description="Why the broker is not ready, as far as it is known.")
    ] = ""


class DiskStatus(Status, frozen=True, kw_only=True):
    """A log directory that is low on space or has failed."""

    broker: Annotated[int, Meta(description="Id of the broker.")]
    directory: Annotated[
        str,
        Meta(
            description="Path of the log directory; empty if the broker ended, in which case "
            "`message` names the directory."
        ),
    ] = ""
    state: Annotated[
        str,
        Meta(
            description="Low: less free space than the reserve. Offline: the broker stopped using "
            "the directory. Ended: the broker ended because its last directory failed or was full."
        ),
    ]
    since: Annotated[str, Meta(description="Since when, for example 2026-11-17T02:00:00Z.")] = ""
    message: Annotated[
        str, Meta(description="What happened, its consequence, and what to do about it.")
    ] = ""


class CertificateStatus(Status, frozen=True, kw_only=True):
    """A certificate that the operator keeps."""

    name: Annotated[
        str, Meta(description="cluster CA, clients CA, operator, or the broker, as in `broker 0`.")
    ]
    not_after: Annotated[
        str, Meta(description="Until when it is valid, for example 2027-11-17T02:00:00Z.")
    ] = ""
    phase: Annotated[
        str,
        Meta(
            description="Of a CA that is being replaced. TrustBoth: nodes and clients learn to "
            "trust the new one. IssueNew: the new one signs, the old one is still trusted. Empty "
            "otherwise."
        ),
    ] = ""
    message: Annotated[str, Meta(description="What the phase waits for.")] = ""


class ListenerStatus(Status, frozen=True, kw_only=True):
    """Where clients connect to a listener."""

    name: Annotated[str, Meta(description="Name of the listener, as in spec.listeners.")]
    bootstrap_servers: Annotated[
        str, Meta(description="Addresses for clients of this listener (bootstrap.servers).")
    ] = ""
    protocol: Annotated[
        str, Meta(description="security.protocol of its clients, for example SASL_SSL.")
    ] = ""
    authentication: Annotated[
        str, Meta(description="How clients authenticate, for example scram-sha-512.")
    ] = ""


class ControllerStatus(Status, frozen=True, kw_only=True):
    """One dedicated controller. Brokers that are controllers too are not listed here."""

    id: Annotated[int, Meta(description="Node id of the controller (10000 and above).")]
    rack: Annotated[
        str, Meta(description="Rack of the controller; empty if there are no racks.")
    ] = ""
    ready: Annotated[bool, Meta(description="Whether the controller is ready.")] = False
    active: Annotated[bool, Meta(description="Whether it is the active controller.")] = False
    pending: Annotated[
        str, Meta(description="Why the controller is going to be restarted; empty otherwise.")
    ] = ""


class RollingStatus(Status, frozen=True, kw_only=True):
    """The current step of a rolling restart."""

    state: Annotated[
        str,
        Meta(
            description="Waiting: for a broker or partition. Restarting: brokers are being "
            "restarted. Electing: preferred leaders are being elected."
        ),
    ]
    brokers: Annotated[list[int], Meta(description="Brokers that are restarted or waited for.")] = (
        field(default_factory=list)
    )
    partition: Annotated[
        str, Meta(description="Partition that the step waits for, for example orders-3.")
    ] = ""
    reason: Annotated[str, Meta(description="Why, in a sentence for people.")] = ""
    since: Annotated[str, Meta(description="Since when, for example 2026-11-17T02:00:00Z.")] = ""
    unavailable: Annotated[
        list[str],
        Meta(
            description="Partitions that cannot be written during the step because too few other "
            "replicas are in sync; at most 20 are named."
        ),
    ] = field(default_factory=list)
    remaining: Annotated[list[int], Meta(description="Nodes that still have to be restarted.")] = (
        field(default_factory=list)
    )


class RestartStatus(Status, frozen=True, kw_only=True):
    """A restart of a broker or dedicated controller, and what clients noticed of it."""

    node: Annotated[int, Meta(description="Id of the broker or controller.")]
    planned: Annotated[
        bool, Meta(description="Whether the operator restarted it; false: it ended by itself.")
    ] = False
    reason: Annotated[str, Meta(description="Why, in a sentence for people.")] = ""
    began: Annotated[str, Meta(description="When, for example 2026-11-17T02:00:00Z.")] = ""
    ready: Annotated[
        str, Meta(description="When it served clients again; empty while it does not.")
    ] = ""
    leaders: Annotated[
        int,
        Meta(
            description="Partitions that it led before a planned restart: their clients went to "
            "other brokers."
        ),
    ] = 0
    unavailable: Annotated[
        list[str],
        Meta(
            description="Partitions that could not be written with acks=all in the meantime; at "
            "most 20 are named."
        ),
    ] = field(default_factory=list)


class KafkaClusterStatus(Status, frozen=True, kw_only=True):
    """The observed state of the cluster."""

    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this status was computed from.")
    ] = 0
    conditions: Annotated[
        list[Condition],
        Meta(
            description="Ready, Progressing, Degraded, RackAware, PreferredLeaders and "
            "DiskPressure; Deprecated if the spec uses a form that a later version removes."
        ),
    ] = field(default_factory=list)
    cluster_id: Annotated[str, Meta(description="Kafka's cluster id.")] = ""
    bootstrap_servers: Annotated[
        str, Meta(description="Addresses for clients inside Kubernetes (bootstrap.servers).")
    ] = ""
    listeners: Annotated[
        list[ListenerStatus], Meta(description="Where clients connect, by listener.")
    ] = field(default_factory=list)
    certificates: Annotated[
        list[CertificateStatus],
        Meta(description="The certificates of a cluster with TLS: until when they are valid."),
    ] = field(default_factory=list)
    brokers: Annotated[
        list[BrokerStatus], Meta(description="All brokers, also those that are leaving.")
    ] = field(default_factory=list)
    controllers: Annotated[
        list[ControllerStatus], Meta(description="The dedicated controllers (spec.controllers).")
    ] = field(default_factory=list)
    broker_count: Annotated[
        int, Meta(description="Number of brokers; the scale subresource reports it.")
    ] = 0
    # -1 because fields with their default value are omitted, and 0 ready brokers must be visible.
    ready_brokers: Annotated[
        int, Meta(description="Number of ready brokers; -1 if it is not known.")
    ] = -1
    selector: Annotated[
        str, Meta(description="Label selector of the brokers' pods, for the scale subresource.")
    ] = ""
    controller: Annotated[
        int, Meta(description="Node id of the active controller; -1 if there is none.")
    ] = -1
    formation: Annotated[
        list[int],
        Meta(description="Nodes that formed the cluster: the first voters of its quorum."),
    ] = field(default_factory=list)
    dynamic_config: Annotated[
        list[str], Meta(description="Broker settings that the operator changed at run time.")
    ] = field(default_factory=list)
    rolling: Annotated[
        RollingStatus | None,
        Meta(description="The current step of a rolling restart; absent if there is none."),
    ] = None
    restarts: Annotated[
        list[RestartStatus], Meta(description="The last 20 restarts, newest first.")
    ] = field(default_factory=list)
    disks: Annotated[
        list[DiskStatus],
        Meta(description="Log directories that are low on space or have failed; others are not "
             "listed."),
    ] = field(default_factory=list)  # fmt: skip
    topics: Annotated[int, Meta(description="Number of topics in the cluster.")] = 0
    partitions: Annotated[int, Meta(description="Number of partitions in the cluster.")] = 0
    preferred_leaders_percent: Annotated[
        int,
        Meta(
            description="Percentage of partitions that are led by their preferred replica; -1 if "
            "it is not known."
        ),
    ] = -1
