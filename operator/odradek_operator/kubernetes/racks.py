"""A rack of a cluster on Kubernetes: the StatefulSet of its brokers, or of its controllers."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kubernetes import names


@dataclass(frozen=True)
class Rack:
    """`ids` are in the order of the ordinals and only grow: an id keeps its pod and volume."""

    name: str
    ids: tuple[int, ...] = ()
    replicas: int = 0
    removed: frozenset[int] = frozenset()  # ids of removed brokers; their volumes may be kept
    controllers: bool = False  # dedicated controllers instead of brokers

    def set_name(self, cluster: str) -> str:
        return names.statefulset_name(cluster, self.name, controllers=self.controllers)

    def pod_name(self, cluster: str, ordinal: int) -> str:
        return names.pod_name(cluster, self.name, ordinal, controllers=self.controllers)

    def volumes(self, spec: KafkaClusterSpec) -> int:
        return 1 if self.controllers else spec.storage.volumes
