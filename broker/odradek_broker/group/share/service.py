"""Routes requests about share groups to the shard of the group, and keeps their state in step.

Called by the handlers of ShareGroupHeartbeat, ShareGroupDescribe, DeleteGroups and the three APIs
of share-group offsets. The state of partitions is with the share coordinator (package `share`),
which is reached through the port `StateStore`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.group.records import Key
from odradek_broker.group.shard import GroupShard
from odradek_broker.group.share import offsets, requests
from odradek_broker.group.share.group import ShareGroup
from odradek_broker.group.share.records import TopicState
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset, TopicId
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

UNINITIALIZED = -1
NOT_HOSTED = "This server does not host this topic-partition."


class StartOffset(Protocol):
    """The start offset of a share partition; -1 while no member has read it."""

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    @property
    def offset(self) -> Offset: ...

    @property
    def complete(self) -> int:
        """How many records after it are done; -1 if unknown."""


class StateStore(Protocol):
    async def initialize(
        self, group_id: str, topic_id: TopicId, partition: int, state_epoch: int, start: Offset
    ) -> None: ...

    async def delete(self, group_id: str, topic_id: TopicId, partition: int) -> None: ...

    async def start_offset(
        self, group_id: str, topic_id: TopicId, partition: int
    ) -> StartOffset: ...


class ShareGroupService:
    def __init__(
        self,
        coordinator: CoordinatorService[GroupShard],
        store: StateStore,
        log_ends: Callable[[list[Key]], Awaitable[Mapping[Key, Offset]]],
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._log_ends = log_ends
        self._initializing: set[asyncio.Task[None]] = set()

    # --- members ----------------------------------------------------------------------------------

    async def heartbeat(self, request: Struct, client_id: str, client_host: str) -> Struct:
        group_id = request.group_id
        decision = await self._coordinator.write(
            self._coordinator.partition_of(group_id),
            lambda shard, now: requests.group_heartbeat(
                shard, now, request, client_id, client_host
            ),
        )
        if decision.initialize:
            self._start_initializing(group_id, decision.initialize, decision.state_epoch)
        assert isinstance(decision.response, Struct)
        return decision.response

    def _start_initializing(self, group_id: str, topics: offsets.Topics, epoch: int) -> None:
        shard = self._coordinator.shard(self._coordinator.partition_of(group_id))
        group = shard.groups.get(group_id) if shard is not None else None
        if isinstance(group, ShareGroup):
            group.initializing_since_ms = self._coordinator.now_ms()
        task = asyncio.ensure_future(self._initialize(group_id, topics, epoch))
        self._initializing.add(task)
        task.add_done_callback(self._initializing.discard)

    async def _initialize(self, group_id: str, topics: offsets.Topics, epoch: int) -> None:
        errors = await self._each(
            topics,
            lambda topic_id, p: self._store.initialize(group_id, topic_id, p, epoch, UNINITIALIZED),
        )
        done = _without_errors(topics, errors)
        try:
            if done:
                await self._initialized(group_id, done)
        except KafkaError as error:
            errors[next(iter(done)), -1] = error
        for (topic_id, _), failure in errors.items():
            # A later heartbeat of any member retries.
            logger.warning(
                "share group %s: the state of topic %s was not initialized: %s",
                group_id,
                topics[topic_id].name,
                failure,
            )

    async def _initialized(self, group_id: str, done: offsets.Topics) -> None:
        await self._coordinator.write(
            self._coordinator.partition_of(group_id),
            lambda shard, now: requests.initialized(shard, now, group_id, done),
        )

    async def _each(
        self, topics: offsets.Topics, one: Callable[[TopicId, int], Awaitable[None]]
    ) -> dict[tuple[TopicId, int], KafkaError]:
        """Calls `work` for every partition; returns the errors."""
        errors: dict[tuple[TopicId, int], KafkaError] = {}

        async def guarded(topic_id: TopicId, partition: int) -> None:
            try:
                await one(topic_id, partition)
            except KafkaError as error:
                errors[topic_id, partition] = error

        await asyncio.gather(
            *(guarded(t, p) for t, topic in topics.items() for p in sorted(topic.partitions))
        )
        return errors

    # --- for operators ----------------------------------------------------------------------------

    async def describe(self, group_id: str) -> Struct:
        return await self._coordinator.read(
            self._coordinator.partition_of(group_id),
            lambda shard, _: requests.describe(shard, group_id),
        )

    async def state_of(self, group_id: str) -> offsets.Topics:
        """The partitions with state; KafkaError if there is no such share group."""
        return await self._coordinator.read(
            self._coordinator.partition_of(group_id),
            lambda shard, _: requests.share_group(shard, group_id).state.initialized,
        )

    async def start_offsets(
        self, group_id: str, topics: offsets.Topics
    ) -> dict[tuple[TopicId, int], tuple[StartOffset, int] | KafkaError]:
        """The start offset of each partition, and its lag (-1 if unknown)."""
        found: dict[tuple[TopicId, int], StartOffset] = {}

        async def look(topic_id: TopicId, partition: int) -> None:
            start = await self._store.start_offset(group_id, topic_id, partition)
            found[topic_id, partition] = start

        errors = await self._each(topics, look)
        names = {t: topic.name for t, topic in topics.items()}
        ends = await self._log_ends([(names[t], p) for t, p in found])
        answers: dict[tuple[TopicId, int], tuple[StartOffset, int] | KafkaError] = {}
        for key, start in found.items():
            end = ends.get((names[key[0]], key[1]))
            lag = -1
            if start.offset != UNINITIALIZED and end is not None:
                lag = max(end - start.offset - max(start.complete, 0), 0)
            answers[key] = (start, lag)
        answers.update(errors)
        return answers

    async def alter_offsets(
        self, group_id: str, topics: offsets.Topics, starts: Mapping[tuple[TopicId, int], Offset]
    ) -> dict[tuple[TopicId, int], KafkaError]:
        """Moves the start offsets of a group without members; the errors of single partitions."""
        epoch = await self._coordinator.write(
            self._coordinator.partition_of(group_id),
            lambda shard, now: requests.alter_offsets(shard, now, group_id, topics),
        )
        errors = await self._each(
            topics,
            lambda t, p: self._store.initialize(group_id, t, p, epoch, starts[t, p]),
        )
        done = _without_errors(topics, errors)
        if done:
            await self._initialized(group_id, done)
        return errors

    async def delete_offsets(
        self, group_id: str, topic_ids: list[TopicId]
    ) -> dict[TopicId, KafkaError]:
        """Deletes the state of topics of a group without members; the errors of single topics."""
        state = await self._empty(group_id)
        topics = {t: state[t] for t in topic_ids if t in state}
        errors = await self._delete_states(group_id, topics)
        done = {t: topic for t, topic in topics.items() if t not in errors}
        await self._coordinator.write(
            self._coordinator.partition_of(group_id),
            lambda shard, now: requests.delete_offsets(shard, now, group_id, done),
        )
        return errors

    async def before_deletion(self, group_id: str) -> None:
        """Deletes the state of a share group that is about to be deleted; does nothing for other
        kinds
        of groups. KafkaError if it has members, or if some of its state could not be deleted."""
        try:
            state = await self._empty(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.group_id_not_found:
                return
            raise
        errors = await self._delete_states(group_id, state)
        if errors:
            raise next(iter(errors.values()))

    async def _empty(self, group_id: str) -> offsets.Topics:
        def look(shard: GroupShard, _: object) -> dict[TopicId, TopicState]:
            group = requests.share_group(shard, group_id)
            offsets.check_empty(group)
            return {**group.state.initializing, **group.state.initialized}

        return await self._coordinator.read(self._coordinator.partition_of(group_id), look)

    async def _delete_states(
        self, group_id: str, topics: offsets.Topics
    ) -> dict[TopicId, KafkaError]:
        errors = await self._each(topics, lambda t, p: self._store.delete(group_id, t, p))
        return {topic_id: error for (topic_id, _), error in errors.items()}


def _without_errors(
    topics: offsets.Topics, errors: Mapping[tuple[TopicId, int], KafkaError]
) -> dict[TopicId, TopicState]:
    done = {}
    for topic_id, topic in topics.items():
        partitions = frozenset(p for p in topic.partitions if (topic_id, p) not in errors)
        if partitions:
            done[topic_id] = TopicState(topic.name, partitions)
    return done
