"""WriteTxnMarkers (27), v1–2: ends transactions in partitions that this broker leads.

Sent by transaction coordinators, and by `kafka-transactions abort` for a transaction that no
coordinator knows. A marker is answered when all in-sync replicas have it. An outdated marker is
refused (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED). A marker for the offsets topic
goes through the group coordinator, because it commits or aborts pending offsets there.
"""

import asyncio
from collections.abc import Awaitable

from odradek_broker.coordinator.internal_topics import OFFSETS_TOPIC
from odradek_broker.coordinator.result import Producer
from odradek_broker.group.service import GroupService
from odradek_broker.handlers.context import RequestContext
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct

API_KEY = 27
VERSIONS = range(1, 3)

# A marker that is not committed by then is answered with REQUEST_TIMED_OUT, and sent again. Shorter
# than the coordinator's own timeout (txn/markers.py), so that one slow partition does not cost the
# others their responses.
COMMIT_SECONDS = 4.0

NOT_HERE = (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    broker = ctx.broker
    return await MarkerWriter(broker.partitions, broker.groups, broker.clock).write(request)


class MarkerWriter:
    """Also called by this broker's own transaction coordinator."""

    def __init__(self, partitions: PartitionService, groups: GroupService, clock: Clock) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock

    async def write(self, request: Struct) -> Struct:
        """Appends all markers before it waits for the first of them."""
        waits: list[Awaitable[ErrorCode]] = []
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    partition = TopicPartition(topic.name, index)
                    waits.append(asyncio.ensure_future(self._write(marker, partition)))
        codes = iter(await asyncio.gather(*waits))
        return Struct(
            markers=[
                Struct(
                    producer_id=marker.producer_id,
                    topics=[
                        Struct(
                            name=topic.name,
                            partitions=[
                                Struct(partition_index=index, error_code=next(codes))
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    async def _write(self, marker: Struct, where: TopicPartition) -> ErrorCode:
        producer = Producer(marker.producer_id, marker.producer_epoch)
        end = EndTxnMarker(marker.transaction_result, marker.coordinator_epoch)
        version = marker.transaction_version
        try:
            if where.topic == OFFSETS_TOPIC:
                coordinator = self._groups.coordinator
                await coordinator.write_marker(where.partition, producer, end, version)
            else:
                await self._append(where, producer, end, version)
        except KafkaError as error:
            return ErrorCode.not_leader_or_follower if error.code in NOT_HERE else error.code
        except TimeoutError:
            return ErrorCode.request_timed_out
        return ErrorCode.none

    async def _append(
        self, where: TopicPartition, producer: Producer, marker: EndTxnMarker, version: int
    ) -> None:
        partitions = self._partitions
        partition = partitions.get(*where)
        partition.check_in_sync_replicas()
        now_ms = self._clock.now_ms()
        offset = partitions.append_marker(partition, producer, marker, now_ms, version)
        waiter = _Committed()
        partition.when_committed(offset, waiter, 0)
        async with asyncio.timeout(COMMIT_SECONDS):
            code = await waiter.future
        if code not in (ErrorCode.none, ErrorCode.not_enough_replicas_after_append):
            raise KafkaError(code)


class _Committed:
    """An AckWaiter that can be awaited."""

    def __init__(self) -> None:
        self.future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def acknowledged(self, index: int, error: ErrorCode) -> None:  # noqa: ARG002
        if not self.future.done():
            self.future.set_result(error)
