"""The findings and actions of a pass of the local runtime, as `odradek local status` shows them."""

from __future__ import annotations

import msgspec

from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.topic import TopicStatus
from odradek_operator.local.pipelines import PipelineReport
from odradek_operator.local.registry import RegistryReport


class ClusterReport(msgspec.Struct, rename="camel"):
    status: KafkaClusterStatus
    plan: list[str]
    topics: dict[str, TopicStatus] = {}
    users: dict[str, KafkaUserStatus] = {}
    failures: list[str] = []
    pids: dict[int, int] = {}
    admin: dict[int, str] = {}  # broker → address of /metrics, /healthz and /readyz
    rebalances: dict[str, KafkaRebalanceStatus] = {}
    registry: RegistryReport | None = None


class Report(msgspec.Struct, rename="camel"):
    clusters: dict[str, ClusterReport] = {}
    pipelines: dict[str, PipelineReport] = {}
    problems: list[str] = []  # invalid manifests, topics without a cluster

    @property
    def settled(self) -> bool:
        """Whether the cluster matches the manifests and nothing is left to do."""
        conditions = [c for one in self.clusters.values() for c in one.status.conditions]
        for report in self.clusters.values():
            conditions += [c for user in report.users.values() for c in user.conditions]
        ready = [c.status == "True" for c in conditions if c.type == "Ready"]
        ready += [r.registry.ready for r in self.clusters.values() if r.registry is not None]
        quiet = not any(r.plan or r.failures for r in self.clusters.values())
        return bool(self.clusters) and all(ready) and quiet and not self.problems
