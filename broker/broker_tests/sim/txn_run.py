"""One run of a cluster with transactions: the cluster's faults, producers, readers of committed.

    0 s         brokers start; a topic with data, and `__transaction_state`
    FAULTS_MS   heal; producers rest, open transactions end (by their producers or by timeout)
    then        every partition's last stable offset is its end (no transaction hangs), and
                everybody can commit again

What must hold (`_judge`): a committed transaction is there, once, with all its records and in
order; an aborted one is not there; of one with an unknown outcome all is there or nothing. A
record that a READ_COMMITTED reader has read stays there, at its offset.
"""

from __future__ import annotations

from random import Random
from typing import Any

from broker_tests.sim import cluster_run
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_run import TOPIC
from broker_tests.sim.faults import Fault
from broker_tests.sim.raft_run import CALM_CONFIG
from broker_tests.sim.state_topic_run import STATE_PARTITIONS, StateTopicRun
from broker_tests.sim.txn_client import FencedClient, Transaction, TransactionOutcome, TxnClient
from broker_tests.sim.txn_node import TxnNode, committed_records
from broker_tests.sim.world import Address, SimulationError
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import TRANSACTION_TOPIC
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import Offset, ProducerId, TopicPartition

CLIENTS = 3
FIRST_CLIENT_HOST = 100
SETTINGS = {
    **cluster_run.SETTINGS,
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "150",
    "request.timeout.ms": "600",
}
SETTLE_MS = 10_000


class ClientHost:
    """The host of the clients: always up, and no node sends it requests."""

    def start(self) -> None: ...

    def handle(self, source: Address, message: object) -> None: ...

    def failed(self, target: int, message: object, refused: bool) -> None: ...

    def disconnected(self, source: int) -> None: ...

    def crash(self, rng: Random) -> None: ...

    def wipe(self, rng: Random) -> None: ...


class TxnRun(StateTopicRun):
    state_topic = TRANSACTION_TOPIC

    client: type[TxnClient] = TxnClient
    nodes: dict[int, TxnNode]  # type: ignore[assignment]

    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        self._producer_ids = 1_000
        super().__init__(f"txn-{seed}", faults=faults, keep_trace=keep_trace)
        rng = self.world.rng("transactions")
        self.duplicates = rng.choice((0.0, 0.05))
        self.resting = False
        self.history: list[Transaction] = []
        self.refusals = 0  # of instances that another one has succeeded
        self.data = [TopicPartition(TOPIC, index) for index in range(self.partition_count)]
        self._positions: dict[TopicPartition, Offset] = {}
        self._seen: dict[tuple[TopicPartition, Offset], str] = {}
        self.clients = []
        for number in range(CLIENTS):
            host = FIRST_CLIENT_HOST + number
            self.world.add(host, ClientHost())
            self.clients.append(self.client(self, number, host))

    def _add_nodes(self, node_ids: tuple[int, ...]) -> None:
        self._settings = Settings(SETTINGS)
        super()._add_nodes(node_ids)

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        return TxnNode(self.world, node_id, CALM_CONFIG, next_id=self._next_id, **options)

    def _next_id(self) -> ProducerId:
        self._producer_ids += 1
        return ProducerId(self._producer_ids)

    # ------------------------------------------------------------ who leads

    def coordinator(self, transactional_id: str) -> TxnNode | None:
        index = partition_for(transactional_id, STATE_PARTITIONS)
        return self.leader(TopicPartition(TRANSACTION_TOPIC, index))

    def leader(self, name: TopicPartition) -> TxnNode | None:
        node = self.newest_leader(name)
        assert node is None or isinstance(node, TxnNode)
        return node

    # ------------------------------------------------------------ phases

    def _produce(self) -> None:
        for number, client in enumerate(self.clients):
            self.world.start(FIRST_CLIENT_HOST + number)
            client.start()

    def _consume(self) -> None:
        """Some reader of committed records reads on, at the leader or at a follower."""
        rng = self._load_rng
        node = rng.choice(list(self.nodes.values()))
        name = rng.choice(self.data)
        if self.world.hosts[node.node_id].up and node.transactions is not None:
            self.world.after_on(node.node_id, 0, self._read_on, node, name)
        self.world.after(rng.randint(5, 40), self._consume)

    def _read_on(self, node: TxnNode, name: TopicPartition) -> None:
        values, at = node.read_committed(name, self._positions.get(name, 0))
        self._positions[name] = at
        for offset, value in values:
            self._seen[name, offset] = value

    def _unsettled(self) -> str | None:
        self.resting = True
        return super()._unsettled() or self._hanging()

    def _hanging(self) -> str | None:
        for index, registration in self.cluster.image.topics[TRANSACTION_TOPIC].partitions.items():
            if registration.leader < 0:
                return f"{TRANSACTION_TOPIC}-{index} has no leader"
        for name in self.data:
            leader = self.leader(name)
            if leader is None:
                return f"{name} has no leader"
            partition = leader.partition(name)
            assert partition is not None
            end, stable = partition.log.log_end_offset, partition.last_fetchable_offset(True)
            if stable != end:
                return f"{name} is stable to {stable} of {end}: a transaction hangs"
        return None

    def _last_writes(self) -> None:
        self._judge()
        self.resting = False
        self._all_get_on(
            SETTLE_MS,
            lambda: [client.committed for client in self.clients],
            "a producer cannot commit after the heal",
        )

    # ------------------------------------------------------------ the judgement

    def _judge(self) -> None:
        there: dict[str, tuple[TopicPartition, Offset]] = {}
        for name in self.data:
            leader = self.leader(name)
            assert leader is not None
            partition = leader.partition(name)
            assert partition is not None
            at = 0
            final: dict[Offset, str] = {}
            while at < partition.log.log_end_offset:
                values, at = committed_records(partition, at)
                final.update(values)
            for offset, value in final.items():
                if value in there:
                    raise SimulationError(
                        f"{value} is there twice: {there[value]}, {name} {offset}"
                    )
                there[value] = name, offset
            for (read_name, offset), value in self._seen.items():
                if read_name == name and final.get(offset) != value:
                    raise SimulationError(
                        f"{value} was read at {offset} of {name}; there is {final.get(offset)}"
                    )
        for one in self.history:
            self._judge_one(one, there)
        self.cluster.acknowledged = sum(
            one.outcome is TransactionOutcome.COMMITTED for one in self.history
        )
        self.cluster.reads = len(self._seen)

    def _judge_one(self, one: Transaction, there: dict[str, tuple[TopicPartition, Offset]]) -> None:
        found = [value for _, value in one.values if value in there]
        sent = [value for value in there if value.rpartition("/")[0] == one.name]
        whole = len(found) == len(one.values)
        match one.outcome:
            case TransactionOutcome.COMMITTED if not whole:
                raise SimulationError(f"{one.name} is committed: {found} of {one.values} is there")
            case TransactionOutcome.ABORTED if sent:
                raise SimulationError(f"{one.name} is aborted, and {sent} is there")
            case TransactionOutcome.UNKNOWN if sent and not (whole and one.asked_to_commit):
                raise SimulationError(f"{one.name} is torn: {sent} of {one.values} is there")
        for name in self.data:
            offsets = [there[v][1] for p, v in one.values if p == name and v in there]
            if offsets != sorted(offsets):
                raise SimulationError(f"{one.name} is out of order in {name}: {offsets}")


class FencedRun(TxnRun):
    """Every transaction is taken over by another instance of its producer."""

    client = FencedClient

    def __init__(self, seed: int | str, **options: Any) -> None:
        super().__init__(seed, **options)
        self.partition_count = 2  # one that knows of the new instance, and one that does not
        self.data = [TopicPartition(TOPIC, index) for index in range(self.partition_count)]


def run_txn_seed(seed: int | str, *, keep_trace: bool = False) -> cluster_run.Outcome:
    return TxnRun(seed, keep_trace=keep_trace).run()


def run_fenced_seed(seed: int | str) -> cluster_run.Outcome:
    return FencedRun(seed).run()
