"""Topic: a topic of a KafkaCluster, its partitions, replicas and settings.

    apiVersion: odradek.dev/v1alpha1
    kind: Topic
    metadata: {name: orders}
    spec:
      cluster: {name: main}
      partitions: 12
      replicationFactor: 3
      config: {retention.ms: 86400000}

Fields that are omitted get the broker's defaults when the topic is created, and are not changed
later.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import (
    ClusterRef,
    Condition,
    Factor,
    Resource,
    Rule,
    Settings,
    Spec,
    Status,
    TopicName,
)

PARTITIONS_MAX = 10_000


class TopicSpec(Spec, frozen=True, kw_only=True):
    """The desired state of the topic."""

    cluster: Annotated[
        ClusterRef, Meta(description="The KafkaCluster that holds the topic. It cannot change.")
    ]
    name: Annotated[
        TopicName | None,
        Meta(
            description="Name of the topic in Kafka, for names that Kubernetes does not allow, for "
            "example Orders_EU. Default: metadata.name. It cannot change."
        ),
    ] = None
    partitions: Annotated[
        Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None,
        Meta(
            description="Number of partitions. Partitions can be added, never removed. Default: "
            "the broker's num.partitions."
        ),
    ] = None
    replication_factor: Annotated[
        Factor | None,
        Meta(
            description="Replicas of each partition. A change moves replicas. Default: the "
            "cluster's spec.replication.factor."
        ),
    ] = None
    config: Annotated[
        Settings,
        Meta(
            description="Topic settings by Kafka's names, for example {retention.ms: 86400000}. "
            "Settings that are not named here are left alone. Default: none."
        ),
    ] = field(default_factory=dict)
    deletion_policy: Annotated[
        Literal["Delete", "Retain"],
        Meta(
            description="What happens to the topic and its records when this resource is deleted. "
            "Default: Delete."
        ),
    ] = "Delete"
    adopt: Annotated[
        bool,
        Meta(
            description="Manage a topic that already exists in Kafka and that no other Topic "
            "manages. If false, an existing topic is refused. Default: false."
        ),
    ] = False


def topic_cluster(topic: Resource[TopicSpec]) -> str:
    """ "namespace/name" of the KafkaCluster that holds the topic."""
    return topic.spec.cluster.key(topic.namespace)


TOPIC_RULES = (
    Rule(
        "self.cluster == oldSelf.cluster",
        "a topic cannot move to another cluster: create a new Topic there",
        "cluster",
        lambda new, old: old is None or new.cluster == old.cluster,
    ),
    Rule(
        "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
        "a topic cannot be renamed: create a new one and copy the records",
        "name",
        lambda new, old: old is None or new.name == old.name,
    ),
    Rule(
        "!has(oldSelf.partitions) || (has(self.partitions) && "
        "self.partitions >= oldSelf.partitions)",
        "partitions cannot be removed: their records would be lost",
        "partitions",
        lambda new, old: (
            old is None or old.partitions is None or (new.partitions or 0) >= old.partitions
        ),
    ),
)


class TopicStatus(Status, frozen=True, kw_only=True):
    """The observed state of the topic."""

    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this status was computed from.")
    ] = 0
    conditions: Annotated[list[Condition], Meta(description="Ready.")] = field(default_factory=list)
    topic_name: Annotated[str, Meta(description="Name of the topic in Kafka.")] = ""
    topic_id: Annotated[
        str, Meta(description="Kafka's id of the topic; empty until it is created.")
    ] = ""
    partitions: Annotated[int, Meta(description="Number of partitions.")] = 0
    replication_factor: Annotated[
        int, Meta(description="Smallest number of replicas among the partitions.")
    ] = 0
    managed: Annotated[
        bool, Meta(description="Whether this resource created or adopted the topic.")
    ] = False
    dynamic_config: Annotated[
        list[str],
        Meta(
            description="Settings that this resource set; they are unset when spec.config no "
            "longer names them."
        ),
    ] = field(default_factory=list)
