"""Transactional producers of the simulation, and what is known about their transactions.

A producer writes a few records to some partitions and commits or aborts, as a client of transaction
version 2 does: sequences start at 0 with each epoch, a request without an answer is sent again, the
epoch for the next transaction comes with the answer to EndTxn. Now and then

    a copy of a request     arrives some hundred milliseconds later once more
    another instance        of the same transactional id begins before the first one commits

InitProducerId is copied too, as when it was left in a connection that its client gave up. Without a
producer id it is the same as a new instance: it fences the transaction that is open by
then, and a batch of that transaction may be refused. So may one of a transaction that the
coordinator may have aborted for its timeout. Without one of these reasons it may not.

The outcome of a transaction is committed or aborted when a coordinator has said so, else unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from broker_tests.sim.asking_node import WALL_CLOCK_SKEW_MS
from broker_tests.sim.client_calls import ClientCalls
from broker_tests.sim.coord_loop import sim_loop
from broker_tests.sim.txn_node import TxnNode
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import ProducerId, TopicPartition
from odradek_protocol.records.records import BatchProducer, Record, build_batch

if TYPE_CHECKING:
    from broker_tests.sim.txn_run import TxnRun

T = TypeVar("T")
ANSWER_MS_MAX = 900
TRANSACTION_TIMEOUT_MS = 2_500
ATTEMPTS = 12
LOST_ANSWERS = 0.05

RETRIED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.kafka_storage_error,
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class TransactionOutcome(Enum):
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    name: str
    began_ms: int
    values: list[tuple[TopicPartition, str]] = field(default_factory=list)  # acknowledged
    outcome: TransactionOutcome = TransactionOutcome.UNKNOWN
    asked_to_commit: bool = False


class RefusedError(Exception):
    """The transaction cannot go on: abort it, or begin anew as another instance."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class TxnClient:
    def __init__(self, run: TxnRun, number: int, host: int) -> None:
        self.run = run
        self.id = f"tx-{number}"
        self.committed = 0
        self._rng = run.world.rng(f"client-{number}")
        self._loop = sim_loop(run.world, host, run.world.rng(f"client-loop-{number}"))
        self._calls = ClientCalls(
            run.world, self._loop, self._rng, ANSWER_MS_MAX, LOST_ANSWERS, run.duplicates
        )
        self._producer: tuple[ProducerId, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._transactions = 0
        self._fenced = False  # an InitProducerId was carried out since the producer has its epoch
        self._inits: list[tuple[TxnNode, UUID]] = []  # under way, and in which life of the node

    def start(self) -> None:
        self._loop.create_task(self._main())

    async def _main(self) -> None:
        while True:
            await asyncio.sleep(self._rng.randint(5, 60) / 1000)
            if self.run.resting:
                continue
            try:
                if self._producer is None:
                    self._take(await self._init())
                await self._transaction()
            except RefusedError:
                self._producer = None

    def _take(self, producer: tuple[ProducerId, int]) -> None:
        if producer != self._producer:
            self._sequences.clear()
        self._producer = producer
        up = self.run.world.hosts
        self._inits = [
            (node, life)
            for node, life in self._inits
            if up[node.node_id].up and node.incarnation_id == life
        ]
        self._fenced = bool(self._inits)

    # ------------------------------------------------------------ requests

    async def _call(self, node: TxnNode, request: Callable[[], Awaitable[T]]) -> T:
        return await self._calls.call(node, request, lambda: node.transactions is not None)

    async def _ask(
        self, find: Callable[[], TxnNode | None], request: Callable[[TxnNode], Awaitable[T]]
    ) -> T:
        """Retries on retriable errors. Raises RefusedError with the code, or TIMED_OUT."""
        for _ in range(ATTEMPTS):
            node = find()
            if node is not None:
                try:
                    return await self._call(node, partial(request, node))
                except TimeoutError:
                    pass
                except KafkaError as error:
                    if error.code not in RETRIED:
                        raise RefusedError(error.code) from error
            await asyncio.sleep(self._rng.randint(10, 60) / 1000)
        raise RefusedError(ErrorCode.request_timed_out)

    async def _init(self) -> tuple[ProducerId, int]:
        async def request(node: TxnNode) -> tuple[ProducerId, int]:
            assert node.transactions is not None
            under_way = node, node.incarnation_id
            self._inits.append(under_way)
            self._fenced = True
            try:
                step = await node.transactions.init_producer_id(
                    self.id, TRANSACTION_TIMEOUT_MS, None
                )
                if step.error is not ErrorCode.none:
                    raise KafkaError(step.error)
            except KafkaError:
                self._inits.remove(under_way)
                raise
            self._inits.remove(under_way)
            return step.producer_id, step.producer_epoch

        return await self._ask(lambda: self.run.coordinator(self.id), request)

    async def _send(self, name: TopicPartition, value: str) -> None:
        assert self._producer is not None
        sequence = self._sequences.get(name, 0)
        await self._send_as(self._producer, sequence, name, value)
        self._sequences[name] = sequence + 1

    async def _send_as(
        self, producer: tuple[ProducerId, int], sequence: int, name: TopicPartition, value: str
    ) -> None:
        batch = build_batch(
            [Record(0, self.run.world.now_ms, None, value.encode())],
            producer=BatchProducer(*producer, sequence),
            transactional=True,
        )

        async def request(node: TxnNode) -> None:
            code = await node.produce(self.id, name, batch)
            if code is not ErrorCode.none:
                raise KafkaError(code)

        await self._ask(lambda: self.run.leader(name), request)

    async def _end(self, producer: tuple[ProducerId, int], *, commit: bool) -> Any:
        async def request(node: TxnNode) -> Any:
            assert node.transactions is not None
            return await node.transactions.end_txn(self.id, *producer, commit=commit, version=2)

        return await self._ask(lambda: self.run.coordinator(self.id), request)

    # ------------------------------------------------------------ one transaction

    def _begin(self) -> Transaction:
        self._transactions += 1
        one = Transaction(f"{self.id}/{self._transactions}", self.run.world.now_ms)
        self.run.history.append(one)
        return one

    def _may_be_aborted(self, one: Transaction) -> bool:
        """By a newer instance, or for its timeout. Its start and its end may be by two clocks."""
        open_ms = self.run.world.now_ms - one.began_ms
        return self._fenced or open_ms > TRANSACTION_TIMEOUT_MS - 2 * WALL_CLOCK_SKEW_MS

    async def _transaction(self) -> None:
        rng = self._rng
        assert self._producer is not None
        one = self._begin()
        names = rng.sample(self.run.data, rng.randint(1, len(self.run.data)))
        commit = rng.random() < 0.7
        try:
            for number, name in enumerate(names * rng.choice((1, 1, 2))):
                value = f"{one.name}/{number}"
                await self._send(name, value)
                one.values.append((name, value))
        except RefusedError as error:
            if error.code is ErrorCode.invalid_txn_state and not self._may_be_aborted(one):
                self.run.cluster.fail(f"{one.name}: a record of an open transaction is refused")
            if error.code is not ErrorCode.transaction_abortable:
                raise
            commit = False
        if rng.random() < 0.1:
            await self._succeeded(one)
            return
        one.asked_to_commit = commit
        step = await self._end(self._producer, commit=commit)
        one.outcome = TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED
        self.run.world.record(f"{one.name} {one.outcome.value}")
        self.committed += commit
        self._take((step.producer_id, step.producer_epoch))

    async def _succeeded(self, one: Transaction) -> None:
        """Another instance begins; the first one must not be able to commit any more."""
        assert self._producer is not None
        zombie = self._producer
        self._take(await self._init())
        one.outcome = TransactionOutcome.ABORTED
        self.run.world.record(f"{one.name} succeeded by {self._producer}")
        try:
            await self._end(zombie, commit=True)
        except RefusedError:
            return
        self.run.cluster.fail(f"{one.name} was committed by {zombie} after {self._producer} began")


class FencedClient(TxnClient):
    """Each transaction is taken over by another instance, and the first instance goes on writing.

    It writes to a partition to which it has not written since it has its epoch. Nothing there knows
    of the new instance, so only the coordinator can refuse it: with the partition in the new
    instance's transaction, the record of the old one would be committed with it.
    """

    async def _transaction(self) -> None:
        assert self._producer is not None
        zombie, first = self._producer, self._begin()
        known, unknown = self._rng.sample(self.run.data, 2)
        await self._send(known, f"{first.name}/0")
        first.values.append((known, f"{first.name}/0"))
        self._take(await self._init())
        first.outcome = TransactionOutcome.ABORTED
        second = self._begin()
        await self._send(known, f"{second.name}/0")
        second.values.append((known, f"{second.name}/0"))
        try:
            await self._send_as(zombie, 0, unknown, f"{first.name}/1")
            self.run.cluster.fail(f"{first.name}: {zombie} wrote after {self._producer} began")
        except RefusedError:
            self.run.refusals += 1
        second.asked_to_commit = True
        step = await self._end(self._producer, commit=True)
        second.outcome = TransactionOutcome.COMMITTED
        self.committed += 1
        self._take((step.producer_id, step.producer_epoch))
