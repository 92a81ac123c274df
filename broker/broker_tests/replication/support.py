"""Three brokers in one process: real logs, handlers, fetchers, codecs; only sockets are missing.

The controller is a table with compare-and-set; tests elect by committing metadata records.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

from broker_tests.log.support import batch, records_of
from broker_tests.partition.support import Metadata, Node, register
from odradek_broker.handlers import fetch, list_offsets
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.fetch_session import FetchSessions
from odradek_broker.log.types import FileRange
from odradek_broker.metadata.records import MetadataRecord, PartitionChangeRecord
from odradek_broker.partition.partition import Partition
from odradek_broker.replication.service import ReplicationService
from odradek_broker.runtime import slices
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.runtime.tasks import LoopThreads
from odradek_broker.security.quotas import ClientQuotas
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages import api
from odradek_protocol.messages.fetch_response import FetchedResponse, decode_fetch_response
from odradek_protocol.messages.struct import Struct

ALL = tuple(BrokerId(i) for i in (1, 2, 3))
NOW_MS = 1_700_000_000_000
CONSUMER_VERSION = 17


class Exchange(RequestContext):
    """A request on no connection; its answer is a future of bytes."""

    __slots__ = ("answer",)

    def __init__(self, broker: BrokerContext, api_key: int, version: int, listener: str) -> None:
        super().__init__(broker, api_key, version, 1, "test", listener, "127.0.0.1")
        self.answer: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()

    def respond(self, chunks: Chunks, size: int) -> None:
        data = bytearray()
        for chunk in chunks:
            if isinstance(chunk, FileRange):
                file = cast(Any, chunk.file)
                data += file.pread(chunk.length, chunk.position)
            else:
                data += chunk
        assert len(data) == size
        if not self.answer.done():
            self.answer.set_result(data)

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)


class Loopback:
    """A connection to another broker of the same process, in order like a real one."""

    def __init__(self, cluster: "Cluster", source: BrokerId, target: BrokerId) -> None:
        self._cluster = cluster
        self._source = source
        self._target = target
        self._last: asyncio.Future[Any] | None = None
        self._closed = False

    async def call_raw(
        self, api_key: int, version: int, body: Sequence[bytes], timeout_ms: float
    ) -> memoryview:
        assert api_key == fetch.API_KEY
        self._check()
        exchange = Exchange(self._cluster.context(self._target), 1, version, "PLAINTEXT")
        before, self._last = self._last, exchange.answer
        self._cluster.fetches += 1
        fetch.serve(exchange, b"".join(body), 0)
        if before is not None:
            await asyncio.wait([before])
        data = await exchange.answer
        await asyncio.sleep(0)
        self._check()
        return memoryview(data)[5:]

    async def call(self, api_key: int, version: int, request: Struct, timeout_ms: float) -> Struct:
        assert api_key == list_offsets.API_KEY
        self._check()
        exchange = Exchange(self._cluster.context(self._target), 2, version, "PLAINTEXT")
        sent = api.decode_request(2, version, api.encode_request(2, version, request))
        answer = api.encode_response(2, version, list_offsets.handle(exchange, sent))
        await asyncio.sleep(0)
        return api.decode_response(2, version, answer)

    def _check(self) -> None:
        ends = {self._source, self._target}
        cut = (self._source, self._target) in self._cluster.cut
        if self._closed or cut or ends & self._cluster.down:
            raise PeerUnavailable("cut off")

    def close(self) -> None:
        self._closed = True


class Cluster:
    def __init__(self, tmp_path: Path, settings: dict[str, str] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.tmp_path = tmp_path
        self.settings = {
            "replica.fetch.backoff.ms": "50",
            "replica.fetch.wait.max.ms": "100",
            "replica.lag.time.max.ms": "500",
            **(settings or {}),
        }
        self.metadata = Metadata()
        self.cut: set[tuple[BrokerId, BrokerId]] = set()
        self.down: set[BrokerId] = set()
        self.fetches = 0
        self.alter_partition_error: ErrorCode | None = None
        self.alter_partitions = 0  # how often it was requested
        self.refused_isr: ErrorCode | None = None  # of every partition, instead of reading its log
        self.refusals = 0
        self.controller: BrokerId | None = None  # a broker whose own requests are plain calls
        self.nodes: dict[BrokerId, Node] = {}
        self._contexts: dict[BrokerId, BrokerContext] = {}
        self._replication: dict[BrokerId, ReplicationService] = {}
        for broker_id in ALL:
            self.start(broker_id)
        racks = {1: "a", 2: "b", 3: "c"}
        self.metadata.commit(*(register(i, rack=racks[i]) for i in ALL))

    def start(self, broker_id: BrokerId) -> None:
        node = Node(
            broker_id,
            self.metadata,
            self.clock,  # type: ignore[arg-type]
            self.loop,  # type: ignore[arg-type]
            {**self.settings, "log.dirs": str(self.tmp_path / str(broker_id))},
            RealDisk(),
            LoopThreads(self.loop),
        )
        self.nodes[broker_id] = node
        self._contexts[broker_id] = cast(
            BrokerContext,
            SimpleNamespace(
                node_id=broker_id,
                settings=node.settings,
                clock=self.clock,
                metrics=Metrics(),
                serves_clients=True,
                authorizer=None,
                quotas=ClientQuotas(),
                partitions=node.service,
                fetch_sessions=FetchSessions(100, Random(broker_id)),
            ),
        )
        replication = ReplicationService(
            node.settings,
            self.clock,
            LoopThreads(self.loop),
            node.service,
            lambda host, _: Loopback(self, broker_id, BrokerId(int(host.rpartition("-")[2]))),
            Channel(self, broker_id),
        )
        self._replication[broker_id] = replication
        replication.start()
        node.service.start_timers()

    def context(self, broker_id: BrokerId) -> BrokerContext:
        return self._contexts[broker_id]

    async def close(self) -> None:
        for replication in self._replication.values():
            replication.close()
        await asyncio.sleep(0)
        for node in self.nodes.values():
            node.logs.close()

    # --- used by tests ---------------------------------------------------------------------

    def partition(self, broker_id: int, index: int = 0, name: str = "orders") -> Partition:
        return self.nodes[BrokerId(broker_id)].partition(index, name)

    def commit(self, *records: MetadataRecord) -> None:
        self.metadata.commit(*records)

    def elect(self, leader: int, topic_id: UUID, index: int = 0) -> None:
        self.commit(PartitionChangeRecord(index, topic_id, leader=BrokerId(leader)))

    async def produce(
        self, broker_id: int, *values: str, index: int = 0, acks_all: bool = True
    ) -> ErrorCode:
        """One batch; the answer to the producer when it is committed (or, with acks=1, written)."""
        partition = self.partition(broker_id, index)
        info = partition.append(memoryview(batch(*values)), NOW_MS)
        waiter = AckFuture()
        when = partition.when_committed if acks_all else partition.when_written
        when(info.last_offset, waiter, 0)
        self.nodes[BrokerId(broker_id)].service.mark_dirty(partition)
        return await asyncio.wait_for(waiter.future, 60)

    def values(self, broker_id: int, index: int = 0) -> list[str]:
        """All that is in a broker's log, by reading its file."""
        log = self.partition(broker_id, index).log
        found: list[str] = []
        at = log.log_start_offset
        while True:
            part, _ = log.read(at, 1 << 20, 1 << 62)
            if part is None:
                return found
            data = cast(Any, part.file).pread(part.length, part.position)
            for record in records_of(data):
                if record.offset >= at:
                    found.append((record.value or b"").decode())
                    at = record.offset + 1

    async def consume(
        self, broker_id: int, request_body: bytes, version: int = CONSUMER_VERSION
    ) -> FetchedResponse:
        exchange = Exchange(self.context(BrokerId(broker_id)), 1, version, "PLAINTEXT")
        fetch.serve(exchange, request_body, 0)
        return decode_fetch_response(version, memoryview(await exchange.answer)[5:])


class AckFuture:
    def __init__(self) -> None:
        self.future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_result(error)


class Channel:
    """The controller, as a broker reaches it."""

    def __init__(self, cluster: Cluster, source: BrokerId) -> None:
        self._cluster = cluster
        self._source = source

    async def call(self, api_key: int, version: int, request: Struct, timeout_ms: float) -> Struct:
        if api_key == 73:
            return self._assign(version, request)
        assert api_key == 56
        if self._source in self._cluster.down:
            raise PeerUnavailable("cut off")
        self._cluster.alter_partitions += 1
        sent = api.decode_request(56, version, api.encode_request(56, version, request))
        await asyncio.sleep(0)
        response = Struct(
            throttle_time=0,
            error_code=self._cluster.alter_partition_error or ErrorCode.none,
            topics=[
                Struct(
                    topic_id=topic.topic_id,
                    partitions=[self._alter(topic.topic_id, asked) for asked in topic.partitions],
                )
                for topic in sent.topics
                if not self._cluster.alter_partition_error
            ],
        )
        await asyncio.sleep(0)
        if self._source == self._cluster.controller:
            return response
        answer = api.encode_response(56, version, response)
        return api.decode_response(56, version, answer)

    def _assign(self, version: int, request: Struct) -> Struct:
        """AssignReplicasToDirs."""
        sent = api.decode_request(73, version, api.encode_request(73, version, request))
        metadata = self._cluster.metadata
        for directory in sent.directories:
            for topic in directory.topics:
                for asked in topic.partitions:
                    known = metadata.image.topics_by_id[topic.topic_id]
                    now = known.partitions[asked.partition_index]
                    directories = list(now.directories)
                    directories[now.replicas.index(BrokerId(sent.broker_id))] = directory.id_
                    metadata.commit(
                        PartitionChangeRecord(
                            asked.partition_index, topic.topic_id, directories=tuple(directories)
                        )
                    )
        return Struct(error_code=ErrorCode.none, directories=[])

    def _alter(self, topic_id: UUID, asked: Struct) -> Struct:
        metadata = self._cluster.metadata
        index = asked.partition_index
        # A refusal has no other fields, as the real controller's.
        answer = Struct(partition_index=index, error_code=ErrorCode.none)
        if self._cluster.refused_isr is not None:
            self._cluster.refusals += 1
            answer.error_code = self._cluster.refused_isr
            return answer
        now = metadata.image.topics_by_id[topic_id].partitions[index]
        isr = tuple(BrokerId(member.broker_id) for member in asked.new_isr_with_epochs)
        if asked.leader_epoch != now.leader_epoch or now.leader != self._source:
            answer.error_code = ErrorCode.fenced_leader_epoch
        elif asked.partition_epoch != now.partition_epoch:
            answer.error_code = ErrorCode.invalid_update_version
        elif set(isr) & self._cluster.down:
            answer.error_code = ErrorCode.ineligible_replica
        else:
            if isr != now.isr:
                metadata.commit(PartitionChangeRecord(index, topic_id, isr=isr))
            now = metadata.image.topics_by_id[topic_id].partitions[index]
            answer.leader_id, answer.leader_epoch = now.leader, now.leader_epoch
            answer.isr, answer.partition_epoch = list(now.isr), now.partition_epoch
        return answer


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)


def run(story: Callable[[Cluster], Awaitable[None]], tmp_path: Path, **settings: str) -> None:
    """Runs one story on a cluster of its own."""

    async def main() -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        cluster = Cluster(tmp_path, names)
        try:
            await story(cluster)
        finally:
            await cluster.close()

    # Committed records are carried out when `commit` returns, however slow the machine is.
    with patch.object(slices, "SLICE_MS", float("inf")):
        asyncio.run(main())
