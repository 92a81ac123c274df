"""One run of a cluster with a coordinator: the cluster's faults, and clients of a ledger.

The phases are those of `cluster_run.py`; its topic is the coordinator's internal topic, so faults
hit its leaders and the operator moves it. A client finds the coordinator as the metadata
of the newest leader epoch says, asks, and counts a request without an answer as "unknown".
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_run import TOPIC, ClusterRun, Outcome
from broker_tests.sim.coord_ledger import LedgerChecker, LedgerShard
from broker_tests.sim.coord_node import CoordNode
from broker_tests.sim.faults import Fault
from broker_tests.sim.raft_run import CALM_CONFIG
from broker_tests.sim.world import SimulationError
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.service import CoordinatorService, CoordinatorTopic
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition

Asked = Callable[[], Coroutine[Any, Any, int]]

KEYS = 5
PATIENCE_MS = 400
WRITE_TIMEOUT_MS = 250.0
SETTLE_MS = 4_000


class LedgerClient:
    """One request at a time for its key: add, look, or wait for the next add."""

    def __init__(self, run: CoordRun, key: str) -> None:
        self.run = run
        self.key = key
        self.done = 0
        self._known = 0
        self._rng = run.world.rng(f"client-{key}")
        self._number = 0  # of the request in flight; answers to older requests are dropped

    def start(self) -> None:
        self.run.world.after(self._rng.randint(1, 60), self._next)

    def _next(self) -> None:
        self._number += 1
        led = self.run.coordinator_of(self.key)
        if led is None or self.run.resting:
            self.run.world.after(self._rng.randint(5, 40), self._next)
            return
        node, service = led
        drawn = self._rng.random()
        if drawn < 0.6:
            action, how = self._add, "add"
        elif drawn < 0.85:
            action, how = self._look, "look"
        else:
            action, how = self._wait, "wait"
        asked = partial(action, service)
        self.run.world.after_on(
            node.node_id, self._rng.randint(0, 8), self._begin, node, asked, how, self._number
        )
        self.run.world.after(PATIENCE_MS, self._give_up, self._number)

    def _begin(self, node: CoordNode, asked: Asked, how: str, number: int) -> None:
        node.loop.create_task(self._ask(asked, how, number))

    async def _ask(self, asked: Asked, how: str, number: int) -> None:
        """Runs at the broker; the answer takes a moment, or is lost on the way."""
        world = self.run.world
        count: int | None = None
        try:
            count = await asked()
        except KafkaError as error:
            if error.code is ErrorCode.unknown_member_id:  # the count is another one
                count, how = int(error.message or 0), "refusal"
        except (SimulationError, AssertionError) as error:
            self.run.cluster.fail(str(error))
            return
        if self._rng.random() > 0.05:
            world.after(self._rng.randint(0, 8), self._heard, count, how, number)

    def _heard(self, count: int | None, how: str, number: int) -> None:
        if number != self._number:
            return
        if count is not None and how != "refusal":
            self.run.world.record(f"{self.key} {how} {count}")
            wrong = self.run.ledger.hears(self.key, count, how)
            if wrong is not None:
                self.run.cluster.fail(wrong)
            self._known = count
            self.done += 1
        elif count is not None:
            self._known = count  # decided from records that may still be lost: no guarantee
        self.run.world.after(self._rng.randint(1, 40), self._next)
        self._number += 1

    def _give_up(self, number: int) -> None:
        if number == self._number:
            self._next()

    async def _add(self, service: CoordinatorService[LedgerShard]) -> int:
        self.run.ledger.asks(self.key)
        known = self._known
        return await service.write(
            service.partition_of(self.key), lambda shard, now: shard.add(self.key, known, now)
        )

    async def _look(self, service: CoordinatorService[LedgerShard]) -> int:
        return await service.read(
            service.partition_of(self.key), lambda shard, now: shard.look(self.key, now)
        )

    async def _wait(self, service: CoordinatorService[LedgerShard]) -> int:
        self.run.ledger.asks(self.key)
        return await service.write(
            service.partition_of(self.key),
            lambda shard, now: shard.wait(self.key, now),
            parks=True,
        )


class CoordRun(ClusterRun):
    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        self.services: dict[int, CoordinatorService[LedgerShard]] = {}
        super().__init__(f"coord-{seed}", faults=faults, keep_trace=keep_trace)
        self.ledger = LedgerChecker()
        self.resting = False  # clients ask nothing, so that replicas can become equal
        self.clients = [LedgerClient(self, f"key-{number}") for number in range(KEYS)]

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        return CoordNode(self.world, node_id, CALM_CONFIG, serve=self._serve, **options)

    def _serve(self, node: CoordNode) -> None:
        service: CoordinatorService[LedgerShard] = CoordinatorService(
            CoordinatorTopic(TOPIC, self.partition_count, WRITE_TIMEOUT_MS),
            lambda _: LedgerShard(),
            node.partitions,
            node.clock,
            node.loop,
        )
        self.services[node.node_id] = service
        service.start()
        node.metadata.subscribe(service.metadata_changed)

    def coordinator_of(self, key: str) -> tuple[CoordNode, CoordinatorService[LedgerShard]] | None:
        index = partition_for(key, self.partition_count)
        node = self.newest_leader(TopicPartition(TOPIC, index))
        if node is None:
            return None
        assert isinstance(node, CoordNode)
        return node, self.services[node.node_id]

    # ------------------------------------------------------------ phases

    def _produce(self) -> None:
        for client in self.clients:
            client.start()

    def _consume(self) -> None:
        """Clients read what the coordinator says, not its log."""

    def _unsettled(self) -> str | None:
        self.resting = True
        return super()._unsettled()

    def _last_writes(self) -> None:
        """Every client is served again, and no acknowledged count is missing."""
        self.resting = False
        for _ in range(2):  # the first may be the answer to what was asked before
            self._all_get_on(
                SETTLE_MS,
                lambda: [client.done for client in self.clients],
                "a client is not served after the heal",
            )

    def run(self) -> Outcome:
        outcome = super().run()
        outcome.acknowledged = self.ledger.answers
        return outcome


def run_coord_seed(seed: int | str, *, keep_trace: bool = False) -> Outcome:
    return CoordRun(seed, keep_trace=keep_trace).run()
