"""A cluster with an internal topic, besides the data, that keeps the state of coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from broker_tests.sim.cluster_run import TOPIC, ClusterRun
from odradek_broker.metadata.image import PartitionRegistration

STATE_PARTITIONS = 2
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class StateTopicRun(ClusterRun):
    state_topic: str
    state_configs = NO_CONFIGS

    def _registrations(self) -> list[PartitionRegistration]:
        """The data's first: the operator moves these; faults chase the leaders of all."""
        topics = self.cluster.image.topics
        names = [name for name in (TOPIC, self.state_topic) if name in topics]
        return [p for name in names for p in topics[name].partitions.values()]

    def _unformed(self) -> str | None:
        missing = super()._unformed()
        if missing is None and self.state_topic not in self.cluster.image.topics:
            self._ask_for_topic(self.state_topic, STATE_PARTITIONS, **self.state_configs)
            return self.state_topic
        return missing
