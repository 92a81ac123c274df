"""The port between a plan and a platform: what Kubernetes and this machine both can do.

Implementations: local/platform.py (processes and directories); the Kubernetes one
(StatefulSets, pods, claims) has the same methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.desired import DesiredCluster, Endpoint, Known
from odradek_operator.kafka.observed import ObservedBroker


class Platform(Protocol):
    def known(self) -> Known: ...

    def observe(self) -> Mapping[int, ObservedBroker]: ...

    def endpoints(
        self, brokers: Mapping[int, str], spec: KafkaClusterSpec
    ) -> Mapping[int, Endpoint]: ...

    def bootstrap(self) -> str: ...

    def write_down(self, desired: DesiredCluster) -> None: ...

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None: ...

    def restart(self, broker: int, settings: Mapping[str, str]) -> None: ...

    def stop(self, broker: int) -> None: ...

    def remove(self, broker: int, *, delete_volumes: bool) -> None: ...
