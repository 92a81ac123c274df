"""One run of a cluster with a share group: the cluster's faults, members that come and go.

    0 s         brokers start; a topic with data, and `__share_group_state`
    FAULTS_MS   heal; nothing is produced any more, members work on
    then        the group is done with every committed record: start offsets reach the ends

What must hold is in `share_client.py`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from broker_tests.sim import cluster_run
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_run import TOPIC
from broker_tests.sim.faults import Fault
from broker_tests.sim.raft_run import CALM_CONFIG
from broker_tests.sim.share_client import GROUP, ShareChecker, ShareClient
from broker_tests.sim.share_node import ShareNode
from broker_tests.sim.state_topic_run import STATE_PARTITIONS, StateTopicRun
from broker_tests.sim.txn_run import FIRST_CLIENT_HOST, ClientHost
from broker_tests.sim.world import SimulationError
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import SHARE_STATE_TOPIC
from odradek_broker.runtime.settings import Settings
from odradek_broker.share.state import Key
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.records import Record, build_batch

MEMBERS = 3
DELIVERIES = 3
SETTINGS = {
    **cluster_run.SETTINGS,
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.snapshot.update.records.per.snapshot": "7",
    "share.coordinator.write.timeout.ms": "400",
    "group.share.delivery.count.limit": str(DELIVERIES),
    "group.share.partition.max.record.locks": "100",
}
# Locks that time out within the run, or never: then only the end of a member frees them.
LOCK_MS = (1_000, 60_000)
DRAIN_MS = 60_000


class ShareRun(StateTopicRun):
    state_topic = SHARE_STATE_TOPIC
    state_configs = MappingProxyType({"cleanup.policy": "delete", "retention.ms": "-1"})

    nodes: dict[int, ShareNode]  # type: ignore[assignment]

    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        super().__init__(f"share-{seed}", faults=faults, keep_trace=keep_trace)
        self.checker = ShareChecker(
            self.cluster.fail, DELIVERIES, self._settings.int("group.share.record.lock.duration.ms")
        )
        self.data = [TopicPartition(TOPIC, index) for index in range(self.partition_count)]
        self.initialized: set[Key] = set()
        self._produced = 0
        self.members = []
        for number in range(MEMBERS):
            host = FIRST_CLIENT_HOST + number
            self.world.add(host, ClientHost())
            self.members.append(ShareClient(self, number, host))

    def _add_nodes(self, node_ids: tuple[int, ...]) -> None:
        lock_ms = self.world.rng("locks").choice(LOCK_MS)
        bounds = {
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.max.record.lock.duration.ms": "60000",
        }
        own = {"group.share.record.lock.duration.ms": str(lock_ms), **bounds}
        self._settings = Settings({**SETTINGS, **own})
        super()._add_nodes(node_ids)

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        return ShareNode(self.world, node_id, CALM_CONFIG, **options)

    def key(self, name: TopicPartition) -> Key:
        return Key(GROUP, self.cluster.image.topics[name.topic].id, name.partition)

    def leader(self, name: TopicPartition) -> ShareNode | None:
        node = self.newest_leader(name)
        assert node is None or isinstance(node, ShareNode)
        return node

    # ------------------------------------------------------------ phases

    def _produce(self) -> None:
        for number, member in enumerate(self.members):
            self.world.start(FIRST_CLIENT_HOST + number)
            member.start()
        self.world.after(10, self._append)

    def _append(self) -> None:
        """Some records at the leader; the test does not wait until they are committed."""
        if not self._loaded:
            return
        rng = self._load_rng
        name = rng.choice(self.data)
        node = self.leader(name)
        if node is not None:
            self.world.after_on(node.node_id, 0, self._append_at, node, name, rng.randint(1, 4))
        self.world.after(rng.randint(20, 80), self._append)

    def _append_at(self, node: ShareNode, name: TopicPartition, count: int) -> None:
        partition = node.partition(name)
        if partition is None or partition.leading is None:
            return
        now_ms = node.clock.now_ms()
        records = [Record(n, now_ms, None, f"{self._produced + n}".encode()) for n in range(count)]
        try:
            partition.check_in_sync_replicas()
            node.partitions.append_own(partition, build_batch(records), now_ms)
            self._produced += count
        except KafkaError:
            pass

    def _consume(self) -> None:
        """The members consume."""

    def _last_writes(self) -> None:
        self._pass_until(DRAIN_MS, self._undone, "after the heal")
        for name in self.data:
            leader = self.leader(name)
            assert leader is not None
            partition = leader.partition(name)
            assert partition is not None
            for offset in range(partition.log.log_end_offset):
                if wrong := self.checker.lost(name, offset):
                    raise SimulationError(wrong)
        self.cluster.acknowledged = self.checker.accepted
        self.cluster.reads = self.checker.delivered

    def _undone(self) -> str | None:
        """The state that the share coordinator has; it is what a new leader would start with."""
        for name in self.data:
            leader, key = self.leader(name), self.key(name)
            index = partition_for(key.text, STATE_PARTITIONS)
            coordinator = self.leader(TopicPartition(SHARE_STATE_TOPIC, index))
            if leader is None or coordinator is None:
                return f"{name} has no leader or no coordinator"
            partition = leader.partition(name)
            shard = coordinator.coordinator.shards.shard(index)
            state = shard.get(key) if shard is not None else None
            if partition is None or state is None:
                return f"{name} has no state"
            end = partition.log.log_end_offset
            if state.start_offset != end:
                return f"{name} is done up to {state.start_offset} of {end}: {state.batches}"
        return None


def run_share_seed(seed: int | str, *, keep_trace: bool = False) -> cluster_run.Outcome:
    return ShareRun(seed, keep_trace=keep_trace).run()
