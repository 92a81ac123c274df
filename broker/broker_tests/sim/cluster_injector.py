"""Faults of a cluster, limited while a disk has lost something: see cluster_run.py."""

from __future__ import annotations

from dataclasses import replace

from broker_tests.sim.cluster_ambush import AMBUSHES, Ambusher
from broker_tests.sim.cluster_checker import ClusterChecker
from broker_tests.sim.faults import Fault, Injector, Kind


class ClusterInjector(Injector):
    """Limits faults after a disk has lost something (the guarantees in cluster_run.py)."""

    cluster: ClusterChecker
    ambusher: Ambusher
    crashes_all = False  # right now

    def crash_point(self, node_id: int, *, critical: bool = False) -> None:
        if self.others_may_die(node_id):
            super().crash_point(node_id, critical=critical)

    def others_may_die(self, node_id: int) -> bool:
        return all(lost == node_id for lost in self.cluster.lost)

    def heal(self) -> None:
        self.ambusher.heal()
        super().heal()

    def _begin(self, fault: Fault) -> None:
        if fault.kind in (Kind.STALL, *AMBUSHES):
            self.ambusher.begin(fault)
            return
        leader = self._leader() if fault.chases_leader else None
        if leader is not None:
            fault = replace(fault, nodes=(leader,), chases_leader=False)
        deadly = fault.kind in (Kind.CRASH, Kind.CRASH_ALL, Kind.WIPE)
        if deadly and self.cluster.lost and fault.nodes != tuple(self.cluster.lost):
            return
        self.crashes_all = fault.kind is Kind.CRASH_ALL
        super()._begin(fault)
        self.crashes_all = False
