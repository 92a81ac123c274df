"""WriteTxnMarkers (27), v1–2: end transactions in partitions that are led here.

Sent by transaction coordinators, and by `kafka-transactions abort` for a transaction that no
coordinator knows. Each marker is answered when all in-sync replicas have it. One that is too old
is refused (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED). A marker for offsets goes
through the group coordinator, whose pending offsets it decides.
"""

import asyncio
from collections.abc import Awaitable

from odradek_broker.coordinator.internal_topics import OFFSETS_TOPIC
from odradek_broker.coordinator.result import Producer
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.context import RequestContext
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct

API_KEY = 27
VERSIONS = range(1, 3)

# Whoever waits longer hears that it timed out, and sends it again. Less than the coordinator's
# own patience (txn/markers.py), so that one slow partition does not cost the others their answers.
COMMIT_SECONDS = 4.0

NOT_HERE = (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    return await write_markers(ctx.broker, request)


async def write_markers(broker: BrokerContext, request: Struct) -> Struct:
    """Also called by this broker's own coordinator. All are appended before the first wait."""
    waits: list[Awaitable[ErrorCode]] = []
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                partition = TopicPartition(topic.name, index)
                waits.append(asyncio.ensure_future(_write(broker, marker, partition)))
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


async def _write(broker: BrokerContext, marker: Struct, where: TopicPartition) -> ErrorCode:
    producer = Producer(marker.producer_id, marker.producer_epoch)
    end = EndTxnMarker(marker.transaction_result, marker.coordinator_epoch)
    version = getattr(marker, "transaction_version", 0)
    try:
        if where.topic == OFFSETS_TOPIC:
            groups = broker.groups.coordinator
            await groups.write_marker(where.partition, producer, end, version)
        else:
            await _append(broker, where, producer, end, version)
    except KafkaError as error:
        return ErrorCode.not_leader_or_follower if error.code in NOT_HERE else error.code
    except TimeoutError:
        return ErrorCode.request_timed_out
    return ErrorCode.none


async def _append(
    broker: BrokerContext,
    where: TopicPartition,
    producer: Producer,
    marker: EndTxnMarker,
    version: int,
) -> None:
    partitions = broker.partitions
    partition = partitions.get(*where)
    partition.check_in_sync_replicas()
    now_ms = broker.clock.now_ms()
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
