"""Routes requests of the consumer protocol to the shard of the group.

Called by the handlers ConsumerGroupHeartbeat and ConsumerGroupDescribe. Regular expressions are
matched against the topics in a thread; the result is then written as a record. As in Kafka, it has
only topics that the member whose heartbeat caused the match may describe, and all members of the
group with this expression get these topics.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek_broker.coordinator.result import CoordinatorResult, Moment
from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.consumer import regex, requests
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.shard import GroupShard
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

MayDescribe = Callable[[str], bool]  # of a topic, by its name


class ConsumerGroupService:
    def __init__(self, coordinator: CoordinatorService[GroupShard], settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._resolving: set[asyncio.Task[None]] = set()

    async def heartbeat(
        self,
        request: Struct,
        version: int,
        client_id: str,
        client_host: str,
        may_describe: MayDescribe | None = None,
    ) -> Struct:
        """`may_describe` is the member's right; None if there is no authorizer."""

        def decide(shard: GroupShard, now: Moment) -> CoordinatorResult[Any]:
            result = requests.group_heartbeat(shard, now, request, version, client_id, client_host)
            assert isinstance(result.response, tuple)
            _, expressions = result.response
            if expressions:
                self._resolve(shard, now, request.group_id, expressions, may_describe)
            return result

        partition = self._coordinator.partition_of(request.group_id)
        response, _ = await self._coordinator.write(partition, decide)
        assert isinstance(response, Struct)
        return response

    async def describe(self, group_id: str) -> Struct:
        assignor = GroupConfig.of(self._settings).consumer.assignors[0]
        partition = self._coordinator.partition_of(group_id)
        return await self._coordinator.read(
            partition, lambda shard, _: requests.describe(shard, group_id, assignor)
        )

    def _resolve(
        self,
        shard: GroupShard,
        now: Moment,
        group_id: str,
        expressions: frozenset[str],
        may_describe: MayDescribe | None,
    ) -> None:
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.resolving |= expressions
            group.regexes_checked_ms = now.wall_ms
        task = asyncio.get_running_loop().create_task(
            self._match(shard, group_id, expressions, may_describe),
            name=f"expressions of group {group_id}",
        )
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _match(
        self,
        shard: GroupShard,
        group_id: str,
        expressions: frozenset[str],
        may_describe: MayDescribe | None,
    ) -> None:
        image = shard.image
        topics = list(image.topics)
        loop = asyncio.get_running_loop()
        matched = await loop.run_in_executor(None, regex.resolve, expressions, topics)
        if may_describe is not None:
            matched = {one: tuple(filter(may_describe, found)) for one, found in matched.items()}
        try:
            await self._coordinator.write(
                self._coordinator.partition_of(group_id),
                lambda shard, now: requests.resolved(shard, now, group_id, matched, image.offset),
            )
        except KafkaError as error:
            # The next heartbeat of any member retries.
            logger.warning(
                "group %s: the topics that match its expressions were not written: %s",
                group_id,
                error,
            )
            group = shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.resolving -= expressions
