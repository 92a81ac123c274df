"""Reads and writes the state of share partitions through the share coordinator of each key.

That is the leader of the key's partition of `__share_group_state`: this broker, or another one,
which gets the request that Kafka's brokers send. Errors that go away (the coordinator is loading
or moving) are retried a few times; then they are raised as KafkaError.

`answer_*` are the other side: the handlers call them, and `BrokerCalls` calls them directly if this
broker is the coordinator.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from odradek_broker.coordinator.broker_calls import BrokerCalls
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import SHARE_STATE_TOPIC
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.share.coordinator import ShareCoordinator
from odradek_broker.share.share_partition import StateBatch, Update
from odradek_broker.share.state import Key, SharePartitionState
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset, TopicId
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

VERSIONS: Mapping[int, int] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 1,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 1,
}
TIMEOUT_MS = 10_000.0
# A new coordinator is elected and loaded within some seconds.
ATTEMPTS = 8
BACKOFF_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 1.0
RETRIED = frozenset(
    (
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    )
)


class Summary(NamedTuple):
    """`offset` is the start offset; -1 while no member has read the partition."""

    state_epoch: int
    leader_epoch: LeaderEpoch
    offset: Offset
    complete: int


class SharePersister:
    def __init__(self, calls: BrokerCalls, image: Callable[[], MetadataImage]) -> None:
        self._calls = calls
        self._image = image

    async def initialize(self, key: Key, state_epoch: int, start_offset: Offset) -> None:
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        await self._call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, key, fields)

    async def read(self, key: Key, leader_epoch: LeaderEpoch) -> SharePartitionState:
        answer = await self._call(
            ApiKey.READ_SHARE_GROUP_STATE, key, {"leader_epoch": leader_epoch}
        )
        return SharePartitionState(
            state_epoch=answer.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=answer.start_offset,
            batches=_batches(answer.state_batches),
        )

    async def write(
        self, key: Key, state_epoch: int, leader_epoch: LeaderEpoch, update: Update
    ) -> None:
        fields = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": update.start_offset,
            "delivery_complete_count": update.complete,
            "state_batches": [_struct(batch) for batch in update.batches],
        }
        await self._call(ApiKey.WRITE_SHARE_GROUP_STATE, key, fields)

    async def delete(self, key: Key) -> None:
        await self._call(ApiKey.DELETE_SHARE_GROUP_STATE, key, {})

    async def summary(self, key: Key) -> Summary:
        fields = {"leader_epoch": -1}
        answer = await self._call(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, key, fields)
        return Summary(
            answer.state_epoch,
            answer.leader_epoch,
            answer.start_offset,
            answer.delivery_complete_count,
        )

    async def _call(self, api_key: int, key: Key, fields: dict[str, Any]) -> Any:
        partition = Struct(partition=key.partition, **fields)
        topic = Struct(topic_id=key.topic_id, partitions=[partition])
        request = Struct(group_id=key.group_id, topics=[topic])
        backoff = BACKOFF_SECONDS
        for attempt in range(ATTEMPTS):
            answer = await self._once(api_key, key, request)
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.none:
                return answer
            if code not in RETRIED or attempt == ATTEMPTS - 1:
                raise KafkaError(code, answer.error_message or "")
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_MAX_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, api_key: int, key: Key, request: Struct) -> Any:
        image = self._image()
        topic = image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return Struct(error_code=ErrorCode.coordinator_not_available, error_message=None)
        leader = topic.partitions[partition_for(key.text, len(topic.partitions))].leader
        if leader < 0:
            return Struct(error_code=ErrorCode.coordinator_not_available, error_message=None)
        try:
            response = await self._calls.call(
                leader, api_key, VERSIONS[api_key], request, TIMEOUT_MS
            )
            return response.results[0].partitions[0]
        except PeerUnavailable as error:
            return Struct(error_code=ErrorCode.coordinator_not_available, error_message=str(error))
        except IndexError:
            # The coordinator does not answer for an empty group id.
            return Struct(error_code=ErrorCode.invalid_request, error_message=None)


class GroupStates:
    """The persister as the group coordinator uses it: by group, topic and partition."""

    def __init__(self, persister: SharePersister) -> None:
        self._persister = persister

    async def initialize(
        self, group_id: str, topic_id: TopicId, partition: int, state_epoch: int, start: Offset
    ) -> None:
        await self._persister.initialize(Key(group_id, topic_id, partition), state_epoch, start)

    async def delete(self, group_id: str, topic_id: TopicId, partition: int) -> None:
        await self._persister.delete(Key(group_id, topic_id, partition))

    async def start_offset(self, group_id: str, topic_id: TopicId, partition: int) -> Summary:
        return await self._persister.summary(Key(group_id, topic_id, partition))


# --- the coordinator's side -----------------------------------------------------------------------

One = Callable[[Key, Struct], Awaitable[Struct]]


async def _each(request: Struct, one: One) -> Struct:
    """One result per partition; a request without a group or topics gets none, as in Kafka."""
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for asked in topic.partitions:
            key = Key(request.group_id, topic.topic_id, asked.partition)
            try:
                result = await one(key, asked)
                result.error_code, result.error_message = ErrorCode.none, None
            except KafkaError as error:
                result = Struct(error_code=error.code, error_message=error.message)
            result.partition = asked.partition
            partitions.append(result)
        results.append(Struct(topic_id=topic.topic_id, partitions=partitions))
    return Struct(results=results)


async def answer_initialize(coordinator: ShareCoordinator, request: Struct) -> Struct:
    async def one(key: Key, asked: Struct) -> Struct:
        await coordinator.decide(
            key,
            lambda shard, now: shard.initialize(key, asked.state_epoch, asked.start_offset, now),
        )
        return Struct()

    return await _each(request, one)


async def answer_read(coordinator: ShareCoordinator, request: Struct) -> Struct:
    async def one(key: Key, asked: Struct) -> Struct:
        state = await coordinator.decide(
            key, lambda shard, now: shard.read(key, asked.leader_epoch, now)
        )
        return Struct(
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[_struct(batch) for batch in state.batches],
        )

    return await _each(request, one)


async def answer_write(coordinator: ShareCoordinator, request: Struct) -> Struct:
    async def one(key: Key, asked: Struct) -> Struct:
        batches = _batches(asked.state_batches)
        epochs = (asked.state_epoch, asked.leader_epoch)
        complete = getattr(asked, "delivery_complete_count", -1)
        await coordinator.decide(
            key,
            lambda shard, now: shard.write(key, epochs, asked.start_offset, batches, complete, now),
        )
        return Struct()

    return await _each(request, one)


async def answer_delete(coordinator: ShareCoordinator, request: Struct) -> Struct:
    async def one(key: Key, asked: Struct) -> Struct:  # noqa: ARG001
        await coordinator.decide(key, lambda shard, _: shard.delete(key))
        return Struct()

    return await _each(request, one)


async def answer_summary(coordinator: ShareCoordinator, request: Struct) -> Struct:
    async def one(key: Key, asked: Struct) -> Struct:  # noqa: ARG001
        state = await coordinator.shards.read(
            coordinator.shards.partition_of(key.text), lambda shard, _: shard.summary(key)
        )
        return Struct(
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete,
        )

    return await _each(request, one)


ANSWERS: Mapping[int, Callable[[ShareCoordinator, Struct], Awaitable[Struct]]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: answer_initialize,
    ApiKey.READ_SHARE_GROUP_STATE: answer_read,
    ApiKey.WRITE_SHARE_GROUP_STATE: answer_write,
    ApiKey.DELETE_SHARE_GROUP_STATE: answer_delete,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: answer_summary,
}


def _struct(batch: StateBatch) -> Struct:
    return Struct(
        first_offset=batch.first,
        last_offset=batch.last,
        delivery_state=batch.state,
        delivery_count=batch.deliveries,
    )


def _batches(read: Any) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read
    )
