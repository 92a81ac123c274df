"""One run of a cluster with a consumer group: the cluster's faults, members that come and go.

The cluster's topic is the group coordinator's (`__consumer_offsets`), as in `coord_run.py`; the
promises are those of `group_client.py`. After the heal every member gets its partitions again.
"""

from __future__ import annotations

from random import Random
from typing import Any

from broker_tests.sim import cluster_run
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_run import TOPIC, ClusterRun, Outcome
from broker_tests.sim.coord_node import CoordNode
from broker_tests.sim.faults import Fault
from broker_tests.sim.group_client import GROUP, GroupChecker, Member
from broker_tests.sim.raft_run import CALM_CONFIG
from broker_tests.sim.txn_run import FIRST_CLIENT_HOST, ClientHost
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.service import CoordinatorService, CoordinatorTopic
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.kinds import new_shard
from odradek_broker.group.metrics import GroupMetrics
from odradek_broker.group.service import GroupService
from odradek_broker.group.shard import GroupShard
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import TopicPartition

MEMBERS = 3
COMMIT_TIMEOUT_MS = 500.0
SETTINGS = {
    **cluster_run.SETTINGS,
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "60",
}
SETTLE_MS = 8_000


class GroupRun(ClusterRun):
    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        self._services: dict[int, GroupService] = {}
        super().__init__(f"group-{seed}", faults=faults, keep_trace=keep_trace)
        self.checker = GroupChecker(self.cluster.fail)
        self.resting = False
        self.members = []
        for number in range(MEMBERS):
            host = FIRST_CLIENT_HOST + number
            self.world.add(host, ClientHost())
            self.members.append(Member(self, number, host))

    def _add_nodes(self, node_ids: tuple[int, ...]) -> None:
        self._settings = Settings(SETTINGS)
        super()._add_nodes(node_ids)

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        return CoordNode(self.world, node_id, CALM_CONFIG, serve=self._serve, **options)

    def _serve(self, node: CoordNode) -> None:
        config, metrics = GroupConfig.of(self._settings), GroupMetrics()
        rng = Random(node.controller_rng.getrandbits(64))
        coordinator: CoordinatorService[GroupShard] = CoordinatorService(
            CoordinatorTopic(TOPIC, self.partition_count, COMMIT_TIMEOUT_MS),
            lambda _: new_shard(lambda: config, rng, metrics),
            node.partitions,
            node.clock,
            node.loop,
        )
        self._services[node.node_id] = GroupService(coordinator, self._settings, metrics)
        coordinator.start()
        node.metadata.subscribe(coordinator.metadata_changed)

    def coordinator(self) -> tuple[CoordNode, GroupService] | None:
        index = partition_for(GROUP, self.partition_count)
        node = self.newest_leader(TopicPartition(TOPIC, index))
        if node is None:
            return None
        assert isinstance(node, CoordNode)
        return node, self._services[node.node_id]

    # ------------------------------------------------------------ phases

    def _produce(self) -> None:
        for number, member in enumerate(self.members):
            self.world.start(FIRST_CLIENT_HOST + number)
            member.start()

    def _consume(self) -> None:
        """Nothing: the members of the group consume."""

    def _unsettled(self) -> str | None:
        self.resting = True
        return super()._unsettled()

    def _last_writes(self) -> None:
        self.resting = False
        self._all_get_on(
            SETTLE_MS,
            lambda: [member.rounds for member in self.members],
            "a member gets nothing after the heal",
        )

    def run(self) -> Outcome:
        outcome = super().run()
        outcome.acknowledged = self.checker.commits
        outcome.reads = self.checker.fetches
        return outcome


def run_group_seed(seed: int | str, *, keep_trace: bool = False) -> Outcome:
    return GroupRun(seed, keep_trace=keep_trace).run()
