"""The table of the Kinds: types, rules, names and printer columns, for parse.py and crd.py."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from odradek_api.base import Rule, Status
from odradek_api.kafka_cluster.rules import CLUSTER_RULES
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_rebalance.rules import REBALANCE_RULES
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_api.kafka_user.rules import USER_RULES
from odradek_api.kafka_user.spec import KafkaUserSpec
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.pipeline.rules import PIPELINE_RULES
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.pipeline.status import SparkPipelineStatus
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
            "A Kafka cluster: brokers in racks, their storage, settings and rolling restarts.",
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
            "A topic of a KafkaCluster: its partitions, replicas and settings.",
        ),
        Kind(
            "KafkaUser",
            "kafkausers",
            ("ku",),
            KafkaUserSpec,
            KafkaUserStatus,
            USER_RULES,
            (
                Column("Cluster", "string", ".spec.cluster.name"),
                Column("Authentication", "string", ".spec.authentication.type"),
                Column("Principal", "string", ".status.principal"),
                Column("Secret", "string", ".status.secret", 1),
                Column("Ready", "string", condition("Ready")),
                Column("Why", "string", condition("Ready", "message"), 1),
                AGE,
            ),
            "A user of a KafkaCluster: its credentials, ACLs, quotas and Secret.",
        ),
        Kind(
            "KafkaRebalance",
            "kafkarebalances",
            ("kr",),
            KafkaRebalanceSpec,
            KafkaRebalanceStatus,
            REBALANCE_RULES,
            (
                Column("Cluster", "string", ".spec.cluster.name"),
                Column("Mode", "string", ".spec.mode"),
                Column("Phase", "string", ".status.phase"),
                Column("Proposal", "string", ".status.proposal"),
                Column("Moves", "integer", ".status.moves"),
                Column("Done%", "integer", ".status.progress.percent"),
                Column("Ready", "string", condition("Ready")),
                Column("Why", "string", condition("Ready", "message"), 1),
                AGE,
            ),
            "Balances a KafkaCluster: a proposal of moves, its approval and its progress.",
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
            "A data pipeline on Spark: it reads sources, runs steps and writes to a sink.",
        ),
    )
}

# msgspec 0.22.0 prepares a Struct on first use, not thread-safely: a second thread that uses it at
# the same time ends the process with SIGSEGV. So it is done here, before any thread starts.
for _kind in KINDS.values():
    for _struct in (_kind.spec, _kind.status):
        msgspec.json.Decoder(_struct)
