"""One run of a cluster whose brokers have directories that fail, and peers that are starved.

As cluster_run.py, with the faults of disk_faults.py. In calm seeds also these must hold, after each
fault and in simulated time (session 500 ms, replica.lag.time.max.ms LAG_MS):

    steps aside     a broker without a usable directory leads nothing FAILOVER_MS later, and is in
                    no ISR with others
    goes on         a partition with enough healthy replicas for FAILOVER_MS has acknowledged a
                    write within that time: nobody waits LAG_MS for a replica that cannot write.
                    (A follower whose fetches are not read is found by its lag only.)
    no livelock     the metadata log grows by a few records per partition and fault
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from broker_tests.sim import cluster_run
from broker_tests.sim.cluster_injector import ClusterInjector
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_run import TOPIC, ClusterRun, Write
from broker_tests.sim.disk_faults import DISK_KINDS, STARVING, DiskFaults, draw_disk_profile
from broker_tests.sim.disk_node import DiskNode
from broker_tests.sim.faults import Fault
from broker_tests.sim.raft_run import CALM_CONFIG
from odradek_broker.controller import stepping_aside
from odradek_broker.controller.stepping_aside import Level
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import Offset, TopicPartition

LAG_MS = 2_400
FAULTS_MS = 9_000
WATCH_MS = 50
FAILOVER_MS = 1_500
STARVED_MS = LAG_MS + LAG_MS // 2 + FAILOVER_MS  # the ISR is looked at twice per LAG_MS
PROBE_MS = 150
PAUSE_MS = 2_000.0  # a tenth of production's, as all times
RECORDS_MAX = 8  # per fault, and as many for each partition
SETTINGS = {**cluster_run.SETTINGS, "replica.lag.time.max.ms": str(LAG_MS)}


class DiskInjector(ClusterInjector):
    disks: DiskFaults

    def _begin(self, fault: Fault) -> None:
        if fault.kind not in (*DISK_KINDS, *STARVING):
            super()._begin(fault)
            return
        leader = self._leader() if fault.chases_leader else None
        if leader is not None:
            fault = Fault(fault.kind, fault.at_ms, fault.duration_ms, (leader,))
        if fault.kind in STARVING or self.others_may_die(fault.nodes[0]):
            self.disks.begin(fault)

    def heal(self) -> None:
        self.disks.heal(list(self._world.hosts))
        super().heal()


class DiskRun(ClusterRun):
    nodes: dict[int, DiskNode]  # type: ignore[assignment]
    faults_ms = FAULTS_MS
    injector_class = DiskInjector
    injector: DiskInjector

    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        super().__init__(f"disk-{seed}", faults=faults, keep_trace=keep_trace)
        rng = self.world.rng("disk-setup")
        self.partition_count = rng.choice((2, 3, 4))
        drawn, self.calm = draw_disk_profile(
            self.world.rng("disk-faults"), tuple(self.nodes), FAULTS_MS
        )
        self.faults = drawn if faults is None else faults
        self.operator.restless = False
        self.operator.acts = self.operator.acts and not self.calm
        self._watching = False
        self._probes: dict[TopicPartition, Write] = {}
        self._probed_ms: dict[TopicPartition, int] = {}
        self._acked_ms: dict[TopicPartition, int] = {}
        self._healthy_ms: dict[tuple[TopicPartition, int], int] = {}
        self._no_directory_ms: dict[int, int] = {}
        self._starved_ms = -STARVED_MS  # when a peer was starved last
        self._fault: tuple[Fault, Offset] | None = None  # the last, and the metadata's end then
        self.records_per_fault = 0

    def _add_nodes(self, node_ids: tuple[int, ...]) -> None:
        self._settings = Settings(SETTINGS)
        self._disk_rng = self.world.rng("dirs")
        self.disks = DiskFaults(self.world, lambda node_id: self.nodes[node_id], self.may_lose)
        self.injector.disks = self.disks
        super()._add_nodes(node_ids)

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        dirs = self._disk_rng.choice((1, 2))
        return DiskNode(self.world, node_id, CALM_CONFIG, faults=self.disks, dirs=dirs, **options)

    def run(self) -> cluster_run.Outcome:
        with mock.patch.object(stepping_aside, "PAUSE_MS", PAUSE_MS):
            return super().run()

    def is_expected(self, error: str) -> bool:
        return "log director" in error

    def may_lose(self, node_id: int) -> bool:
        """No two brokers at a time, and one whose directory is broken may end at any moment."""
        others = [node for other, node in self.nodes.items() if other != node_id]
        broken = any(one.broken or one.failure for node in others for one in node.directories)
        return not broken and super().may_lose(node_id)

    def _serves(self, node_id: int) -> bool:
        healthy = all(one.usable and one.failure is None for one in self.nodes[node_id].directories)
        return healthy and super()._serves(node_id)

    # ------------------------------------------------------------ what must hold in calm seeds

    def _produce(self) -> None:
        if self.calm and not self._watching:
            self._watching = True
            for fault in self.faults:
                self.world.after(fault.at_ms, self._fault_begins, fault)
            self._watch()
        super()._produce()

    def _fault_begins(self, fault: Fault) -> None:
        self._fault = fault, self.cluster.image.offset

    def _watch(self) -> None:
        if not self._loaded:
            return
        for index, registration in self.cluster.image.topics[TOPIC].partitions.items():
            name = TopicPartition(TOPIC, index)
            self._probe(name)
            self._check_goes_on(name, registration)
        for node in self.nodes.values():
            self._check_steps_aside(node)
        self._check_livelock()
        self.world.after(WATCH_MS, self._watch)

    def _probe(self, name: TopicPartition) -> None:
        now_ms = self.world.now_ms
        probe = self._probes.get(name)
        if probe is not None and probe.done:
            self._acked_ms[name] = now_ms
        if probe is None or probe.done or now_ms - self._probed_ms[name] >= PROBE_MS:
            self._probed_ms[name] = now_ms
            self._probes[name] = self._write(name, True)

    def _check_goes_on(self, name: TopicPartition, registration: PartitionRegistration) -> None:
        now_ms = self.world.now_ms
        since: list[int] = []
        for replica in registration.replicas:
            if self._is_healthy(name, replica):
                since.append(self._healthy_ms.setdefault((name, replica), now_ms))
            else:
                self._healthy_ms.pop((name, replica), None)
        if self.disks.starved:
            self._starved_ms = now_ms
        needed = max(1, self.min_isr)
        if self._refuses_producers(name, registration.leader):
            self._acked_ms[name] = now_ms
        if len(since) < needed:
            return
        enough_ms = sorted(since)[needed - 1]
        stuck_ms = now_ms - max(enough_ms, self._acked_ms.get(name, 0))
        bound_ms = STARVED_MS if now_ms - self._starved_ms < STARVED_MS else FAILOVER_MS
        if stuck_ms > bound_ms:
            self.cluster.fail(
                f"{name} has acknowledged nothing for {stuck_ms} ms, although {len(since)} of its "
                f"replicas are healthy: {registration}"
            )

    def _refuses_producers(self, name: TopicPartition, leader: int) -> bool:
        """One of several directories has little room: the broker goes on leading what is there
        (it steps aside when all have), and producers wait for room."""
        if leader < 0 or len(self.nodes[leader].directories) == 1:
            return False
        log = self.nodes[leader].data.logs.get(name)
        return log is not None and log.log_dir.level is Level.LOW

    def _is_healthy(self, name: TopicPartition, replica: int) -> bool:
        node, log = self.nodes[replica], self.nodes[replica].data.logs.get(name)
        return (
            self.world.hosts[replica].up
            and node.serves
            and replica not in self.disks.starved
            and log is not None
            and log.log_dir.usable
            and log.log_dir.failure is None
        )

    def _check_steps_aside(self, node: DiskNode) -> None:
        """Without a directory: all broken, or offline in this life."""
        node_id, now_ms = node.node_id, self.world.now_ms
        if any(not one.broken and one.failure is None for one in node.directories):
            self._no_directory_ms.pop(node_id, None)
            return
        since_ms = self._no_directory_ms.setdefault(node_id, now_ms)
        if now_ms - since_ms <= FAILOVER_MS:
            return
        for index, registration in self.cluster.image.topics[TOPIC].partitions.items():
            if registration.leader == node_id or (
                node_id in registration.isr and len(registration.isr) > 1
            ):
                self.cluster.fail(
                    f"broker {node_id} has had no directory for {now_ms - since_ms} ms, and "
                    f"{TOPIC}-{index} is {registration}"
                )

    def _check_livelock(self) -> None:
        if self._fault is None:
            return
        fault, offset = self._fault
        grown = self.cluster.image.offset - offset
        self.records_per_fault = max(self.records_per_fault, grown)
        if grown > RECORDS_MAX * (1 + self.partition_count):
            self.cluster.fail(f"{grown} metadata records since {fault}")


def run_disk_seed(seed: int | str, *, keep_trace: bool = False) -> cluster_run.Outcome:
    return DiskRun(seed, keep_trace=keep_trace).run()
