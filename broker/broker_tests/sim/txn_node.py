"""A simulated broker with transactions: the production coordinator, verifier, markers and produce.

What is between brokers (WriteTxnMarkers, AddPartitionsToTxn) travels over the simulated network to
the production handlers there; a request without an answer is `PeerUnavailable`, as over a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from broker_tests.sim.cluster_node import SimClock
from broker_tests.sim.coord_node import CoordNode
from broker_tests.sim.world import Address
from odradek_broker.coordinator.loading import batches_of
from odradek_broker.handlers import add_partitions_to_txn, produce, write_txn_markers
from odradek_broker.handlers.produce import ProduceCall
from odradek_broker.log.control import parse_marker
from odradek_broker.partition.partition import Partition
from odradek_broker.runtime.disk import File
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.security.quotas import ClientQuotas
from odradek_broker.txn import verifier
from odradek_broker.txn.markers import WRITE_TXN_MARKERS, MarkerSender
from odradek_broker.txn.service import TransactionCoordinator
from odradek_broker.txn.verifier import ADD_PARTITIONS_TO_TXN, TransactionVerifier
from odradek_protocol.byte_range import whole
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, Offset, ProducerId, TopicPartition
from odradek_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.records import read_records

CALL_MS_MAX = 400.0
PRODUCE_TIMEOUT_MS = 600
PRODUCE_VERSION = produce.ADDS_PARTITIONS_FROM_VERSION
WALL_CLOCK_BEGINS_MS = 1_700_000_000_000
WALL_CLOCK_SKEW_MS = 40
FETCH_BYTES = 3_000
LATE_COPIES = 0.08


class Ask(NamedTuple):
    """A request between brokers."""

    number: int
    api_key: int
    request: Struct


class Said(NamedTuple):
    number: int
    response: Struct


class SkewedClock(SimClock):
    """Wall time that differs a little between brokers: transactions time out by it."""

    def __init__(self, node: TxnNode, rng: Random) -> None:
        super().__init__(node, rng)
        self._skew_ms = rng.randint(-WALL_CLOCK_SKEW_MS, WALL_CLOCK_SKEW_MS)

    def now_ms(self) -> int:
        return WALL_CLOCK_BEGINS_MS + self._node.world.now_ms + self._skew_ms


class SimCalls:
    """`txn.channels.BrokerCalls` over the simulated network."""

    def __init__(self, node: TxnNode) -> None:
        self._node = node

    async def call(
        self, broker_id: BrokerId, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Struct:
        node = self._node
        if broker_id == node.node_id:
            return await node.local[api_key](request)
        number, future = node.ask(broker_id, api_key, request)
        try:
            async with asyncio.timeout(min(timeout_ms, CALL_MS_MAX) / 1000):
                return await future
        except TimeoutError:
            raise PeerUnavailable(f"broker {broker_id} does not answer") from None
        finally:
            node.asked.pop(number, None)

    def close(self) -> None: ...


class SimProduce(ProduceCall):
    """A produce request whose answer is given as it is, not encoded."""

    def __init__(self, ctx: Any, request: ProduceRequest, done: asyncio.Future[Any]) -> None:
        super().__init__(ctx, request)
        self._done = done

    def _answer(self) -> None:
        self.finished = True
        if not self._done.done():
            self._done.set_result(self._topics[0].partitions[0])


class TxnNode(CoordNode):
    def __init__(self, *args: Any, next_id: Callable[[], ProducerId], **kwargs: Any) -> None:
        super().__init__(*args, serve=self._start_transactions, **kwargs)
        self._next_id = next_id
        self._late_rng = self.world.rng(f"late-{self.node_id}")
        self.clock = SkewedClock(self, self.world.rng(f"wall-clock-{self.node_id}"))
        self.asked: dict[int, asyncio.Future[Struct]] = {}
        self._asked_number = 0
        self.local: dict[int, Callable[[Struct], Awaitable[Struct]]] = {}
        self.transactions: TransactionCoordinator | None = None  # while this broker serves

    def start(self) -> None:
        self.asked.clear()
        self.transactions = None
        super().start()

    @property
    def serves(self) -> bool:
        return self.transactions is not None

    def _start_transactions(self, _: CoordNode) -> None:
        self.loop.call_soon(self._serve_transactions)

    def _serve_transactions(self) -> None:
        metadata, calls = self.metadata, SimCalls(self)

        async def next_producer_id() -> ProducerId:
            await asyncio.sleep(0.005)
            return self._next_id()

        self.transactions = TransactionCoordinator(
            self.settings, self.partitions, self.clock, self.loop, next_producer_id
        )
        context: Any = SimpleNamespace(
            partitions=self.partitions,
            clock=self.clock,
            settings=self.settings,
            metrics=Metrics(),
            metadata=metadata,
            transactions=self.transactions,
            verifier=TransactionVerifier(cast(Any, calls), lambda: metadata.image, self.settings),
            offset_markers={},
            authorizer=None,
            quotas=ClientQuotas(),
        )
        self._context = context

        transactions = self.transactions

        async def add(request: Struct) -> Struct:
            return await add_partitions_to_txn.batched(
                transactions, metadata, request, verifier.VERSION
            )

        # No transaction of the simulation commits offsets: there is no group coordinator.
        markers = write_txn_markers.MarkerWriter(self.partitions, cast(Any, None), self.clock)
        self.local = {ADD_PARTITIONS_TO_TXN: add, WRITE_TXN_MARKERS: markers.write}
        self.transactions.start(MarkerSender(cast(Any, calls), lambda: metadata.image))
        metadata.subscribe(self.transactions.shards.metadata_changed)

    # ------------------------------------------------------------ between brokers

    def ask(
        self, broker_id: int, api_key: int, request: Struct
    ) -> tuple[int, asyncio.Future[Struct]]:
        self._asked_number += 1
        future: asyncio.Future[Struct] = self.loop.create_future()
        self.asked[self._asked_number] = future
        message = Ask(self._asked_number, api_key, request)
        self.world.send(self.node_id, broker_id, message)
        if self._late_rng.random() < LATE_COPIES:
            # As if it had lain in a socket for so long, and been sent again meanwhile.
            delay_ms = self._late_rng.randint(80, 900)
            self.world.after_on(
                self.node_id, delay_ms, self.world.send, self.node_id, broker_id, message
            )
        return self._asked_number, future

    def handle(self, source: Address, message: Any) -> None:
        match message:
            case Ask():
                if self.transactions is not None:
                    self.loop.create_task(self._answer_to(source, message))
            case Said(number, response):
                future = self.asked.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(response)
            case _:
                super().handle(source, message)

    async def _answer_to(self, source: Address, ask: Ask) -> None:
        response = await self.local[ask.api_key](ask.request)
        self.world.reply(self.node_id, source, Said(ask.number, response))

    def failed(self, target: int, message: Any, refused: bool) -> None:
        if isinstance(message, Ask):
            future = self.asked.pop(message.number, None)
            if future is not None and not future.done():
                future.set_exception(PeerUnavailable(f"broker {target} is gone"))
        else:
            super().failed(target, message, refused)

    # ------------------------------------------------------------ for clients

    async def produce(
        self, transactional_id: str | None, name: TopicPartition, batch: bytes
    ) -> ErrorCode:
        done: asyncio.Future[ProducePartition] = self.loop.create_future()
        asked = ProducePartition(name.partition, whole(batch))
        request = ProduceRequest(
            transactional_id, -1, PRODUCE_TIMEOUT_MS, [ProduceTopic(name.topic, None, [asked])]
        )
        ctx = SimpleNamespace(broker=self._context, api_version=PRODUCE_VERSION)
        SimProduce(ctx, request, done).start()
        return ErrorCode((await done).error_code)

    def read_committed(
        self, name: TopicPartition, at: Offset
    ) -> tuple[list[tuple[Offset, str]], Offset]:
        """What a consumer makes of one fetch, and where it goes on."""
        partition = self.partition(name)
        if partition is None or (partition.leading is None and partition.following is None):
            return [], at
        return committed_records(partition, at)


def committed_records(partition: Partition, at: Offset) -> tuple[list[tuple[Offset, str]], Offset]:
    log = partition.log
    end = partition.last_fetchable_offset(True)
    if not log.log_start_offset <= at < end:
        return [], at
    found, first = log.read(at, FETCH_BYTES, end)
    if found is None:
        return [], at
    aborted = sorted((offset, pid) for pid, offset in log.aborted_in(found, first, at, end))
    chunk = cast(File, found.file).pread(found.length, found.position)
    values: list[tuple[Offset, str]] = []
    skipped: set[int] = set()
    for header, batch in batches_of(chunk):
        while aborted and aborted[0][0] <= header.base_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            marker = parse_marker(batch)
            if marker is not None and not marker.commit:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            for record in read_records(batch):
                if record.offset >= at:
                    values.append((record.offset, (record.value or b"").decode()))
        at = max(at, header.next_offset)
    return values, at
