"""Topic: a topic of a KafkaCluster, its partitions, replicas and settings.

    apiVersion: odradek.dev/v1alpha1
    kind: Topic
    metadata: {name: orders}
    spec:
      cluster: {name: main}
      partitions: 12
      replicationFactor: 3
      config: {retention.ms: 86400000}

What is left out is the broker's choice when the topic is made, and is not touched later.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import Condition, DnsLabel, Factor, Rule, Settings, Spec, Status

PARTITIONS_MAX = 10_000
TopicName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]+$", max_length=249)]


class ClusterRef(Spec, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=253)]
    namespace: Annotated[
        DnsLabel | None,
        Meta(description="Left out: the Topic's own. Others only if the cluster lists this one."),
    ] = None


class TopicSpec(Spec, frozen=True, kw_only=True):
    cluster: ClusterRef
    name: Annotated[
        TopicName | None,
        Meta(description="The name in Kafka; left out: the resource's own. Never changes."),
    ] = None
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None
    replication_factor: Factor | None = None
    config: Annotated[Settings, Meta(description="Any topic setting of Kafka's.")] = field(
        default_factory=dict
    )
    deletion_policy: Annotated[
        Literal["Delete", "Retain"],
        Meta(description="What becomes of the topic when this resource is deleted."),
    ] = "Delete"
    adopt: Annotated[
        bool, Meta(description="Take over a topic that exists already and is nobody's.")
    ] = False


TOPIC_RULES = (
    Rule(
        "self.cluster == oldSelf.cluster",
        "a topic cannot move to another cluster: make a new Topic there",
        "cluster",
        lambda new, old: old is None or new.cluster == old.cluster,
    ),
    Rule(
        "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
        "a topic cannot be renamed: make a new one and copy the records",
        "name",
        lambda new, old: old is None or new.name == old.name,
    ),
    Rule(
        "!has(oldSelf.partitions) || (has(self.partitions) && "
        "self.partitions >= oldSelf.partitions)",
        "partitions are added, never taken away: records would be lost",
        "partitions",
        lambda new, old: (
            old is None or old.partitions is None or (new.partitions or 0) >= old.partitions
        ),
    ),
)


class TopicStatus(Status, frozen=True, kw_only=True):
    observed_generation: int = 0
    conditions: list[Condition] = field(default_factory=list)
    topic_name: str = ""
    topic_id: str = ""
    partitions: int = 0
    replication_factor: int = 0
    managed: bool = False  # made or adopted by this resource
    dynamic_config: list[str] = field(default_factory=list)  # settings that this resource set
