"""A simulated broker with transactions: the production coordinator, verifier, markers and produce.

What is between brokers (WriteTxnMarkers, AddPartitionsToTxn) travels over the simulated network to
the production handlers there; a request without an answer is `PeerUnavailable`, as over a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from broker_tests.sim.asking_node import AskingNode, SimCalls
from odradek_broker.coordinator.loading import batches_of
from odradek_broker.handlers import add_partitions_to_txn, produce, write_txn_markers
from odradek_broker.handlers.produce import ProduceCall
from odradek_broker.log.control import parse_marker
from odradek_broker.partition.partition import Partition
from odradek_broker.runtime.disk import File
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.security.quotas import ClientQuotas
from odradek_broker.txn import verifier
from odradek_broker.txn.markers import WRITE_TXN_MARKERS, MarkerSender
from odradek_broker.txn.service import TransactionCoordinator
from odradek_broker.txn.verifier import ADD_PARTITIONS_TO_TXN, TransactionVerifier
from odradek_protocol.byte_range import whole
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import Offset, ProducerId, TopicPartition
from odradek_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.records import read_records

PRODUCE_TIMEOUT_MS = 600
PRODUCE_VERSION = produce.ADDS_PARTITIONS_FROM_VERSION
FETCH_BYTES = 3_000


class SimProduce(ProduceCall):
    """A produce request whose answer is given as it is, not encoded."""

    def __init__(self, ctx: Any, request: ProduceRequest, done: asyncio.Future[Any]) -> None:
        super().__init__(ctx, request)
        self._done = done

    def _answer(self) -> None:
        self.finished = True
        if not self._done.done():
            self._done.set_result(self._topics[0].partitions[0])


class TxnNode(AskingNode):
    def __init__(self, *args: Any, next_id: Callable[[], ProducerId], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._next_id = next_id
        self.transactions: TransactionCoordinator | None = None  # while this broker serves

    def start(self) -> None:
        self.transactions = None
        super().start()

    @property
    def serves(self) -> bool:
        return self.transactions is not None

    def serve_others(self) -> None:
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
        """The records that a consumer returns for one fetch, and its next offset."""
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
