"""The table of the Kinds: their types, rules, names and columns; parse.py and crd.py read it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from odradek_api.base import Rule, Status
from odradek_api.kafka_cluster import CLUSTER_RULES, KafkaClusterSpec, KafkaClusterStatus
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.spark_pipeline import PIPELINE_RULES, SparkPipelineStatus
from odradek_api.topic import TOPIC_RULES, TopicSpec, TopicStatus


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    path: str
    priority: int = 0  # 1: only with -o wide


@dataclass(frozen=True)
class Kind:
    name: str
    plural: str
    short_names: tuple[str, ...]
    spec: type[msgspec.Struct]
    status: type[Status]
    rules: tuple[Rule, ...]
    columns: tuple[Column, ...]
    description: str
    scale: tuple[str, str, str] | None = None  # spec, status and selector paths


def condition(name: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{name}")].{field}'


AGE = Column("Age", "date", ".metadata.creationTimestamp")

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "KafkaCluster",
            "kafkaclusters",
            ("kc",),
            KafkaClusterSpec,
            KafkaClusterStatus,
            CLUSTER_RULES,
            (
                Column("Engine", "string", ".spec.engine"),
                Column("Brokers", "integer", ".spec.brokers"),
                Column("ReadyBrokers", "integer", ".status.readyBrokers"),
                Column("Ready", "string", condition("Ready")),
                Column("DiskPressure", "string", condition("DiskPressure")),
                Column("Rolling", "string", ".status.rolling.reason"),
                Column("RackAware", "string", condition("RackAware"), 1),
                Column("Preferred%", "integer", ".status.preferredLeadersPercent", 1),
                Column("Why", "string", condition("Ready", "message"), 1),
                Column("Bootstrap", "string", ".status.bootstrapServers", 1),
                AGE,
            ),
            "A Kafka cluster: brokers in racks, their storage and settings.",
            (".spec.brokers", ".status.brokerCount", ".status.selector"),
        ),
        Kind(
            "Topic",
            "topics",
            ("kt",),
            TopicSpec,
            TopicStatus,
            TOPIC_RULES,
            (
                Column("Cluster", "string", ".spec.cluster.name"),
                Column("Topic", "string", ".status.topicName"),
                Column("Partitions", "integer", ".status.partitions"),
                Column("Replicas", "integer", ".status.replicationFactor"),
                Column("Ready", "string", condition("Ready")),
                Column("Why", "string", condition("Ready", "message"), 1),
                AGE,
            ),
            "A topic of a KafkaCluster.",
        ),
        Kind(
            "SparkPipeline",
            "sparkpipelines",
            ("sp",),
            SparkPipelineSpec,
            SparkPipelineStatus,
            PIPELINE_RULES,
            (
                Column("Cluster", "string", ".spec.cluster.name"),
                Column("Mode", "string", ".spec.mode"),
                Column("State", "string", ".status.state"),
                Column("Lag", "integer", ".status.lagRecords"),
                Column("Rate", "number", ".status.processRate"),
                Column("Restarts", "integer", ".status.restarts", 1),
                Column("Ready", "string", condition("Ready")),
                Column("Why", "string", condition("Ready", "message"), 1),
                AGE,
            ),
            "A data pipeline on Spark: sources, steps, a sink.",
        ),
    )
}

# msgspec prepares a Struct when it is first needed, and a second thread that needs it meanwhile
# finds it half prepared: the process ends with SIGSEGV (0.22.0). So here, before there are threads.
for _kind in KINDS.values():
    for _struct in (_kind.spec, _kind.status):
        msgspec.json.Decoder(_struct)
