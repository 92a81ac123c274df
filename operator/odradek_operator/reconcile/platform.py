"""The port between a plan and a platform, implemented by kubernetes/platform.py (StatefulSets,
pods, claims) and local/platform.py (processes, directories)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from odradek_operator.kafka.desired import ClusterLayout, DesiredCluster, Endpoint, Known
from odradek_operator.kafka.observed import ObservedBroker


class Platform(Protocol):
    # -- observe: these change neither the platform nor the next observation -----------------------

    def known(self) -> Known: ...

    def observe(self) -> Mapping[int, ObservedBroker]: ...

    def endpoints(self, layout: ClusterLayout) -> Mapping[int, Endpoint]:
        """Where the nodes of the layout are going to listen, and where all existing ones do."""

    def bootstrap(self) -> str: ...

    def metrics(self) -> Mapping[int, str]:
        """Brokers → host:port of their metrics."""

    # -- act ---------------------------------------------------------------------------------------

    def apply(self, desired: DesiredCluster) -> None:
        """Persists the desired state and applies everything around the nodes; starts and restarts
        none of them."""

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None: ...

    def restart(self, broker: int, settings: Mapping[str, str]) -> None: ...

    def stop(self, broker: int) -> None: ...

    def remove(self, broker: int, *, delete_volumes: bool) -> None: ...
