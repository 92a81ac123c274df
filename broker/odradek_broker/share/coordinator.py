"""The share coordinator of this broker: its shards, and the start of their logs.

Called by `persister.py` for share partitions whose state this broker keeps, and by the handlers of
the five state APIs, with which other brokers do the same.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from odradek_broker.coordinator.internal_topics import SHARE_STATE_TOPIC
from odradek_broker.coordinator.result import CoordinatorResult, Moment
from odradek_broker.coordinator.service import CoordinatorService, CoordinatorTopic
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_broker.share.shard import ShareShard
from odradek_broker.share.state import Key
from odradek_protocol.error_codes import KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ShareCoordinator:
    def __init__(
        self,
        settings: Settings,
        partitions: PartitionService,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._pruning: asyncio.Task[None] | None = None
        self.shards = CoordinatorService(
            CoordinatorTopic(
                SHARE_STATE_TOPIC,
                default_partitions=settings.int("share.coordinator.state.topic.num.partitions"),
                write_timeout_ms=float(settings.int("share.coordinator.write.timeout.ms")),
                codec=settings.int("share.coordinator.state.topic.compression.codec"),
            ),
            lambda _: ShareShard(
                lambda: settings.int("share.coordinator.snapshot.update.records.per.snapshot"),
                lambda: settings.int("share.coordinator.cold.partition.snapshot.interval.ms"),
            ),
            partitions,
            clock,
            loop,
        )

    def start(self) -> None:
        self.shards.start()
        self._pruning = asyncio.ensure_future(self._prune_for_ever())

    def close(self) -> None:
        self.shards.close()
        if self._pruning is not None:
            self._pruning.cancel()

    async def decide(
        self, key: Key, decide: Callable[[ShareShard, Moment], CoordinatorResult[T]]
    ) -> T:
        return await self.shards.write(self.shards.partition_of(key.text), decide)

    async def _prune_for_ever(self) -> None:
        while True:
            interval_ms = self._settings.int("share.coordinator.state.topic.prune.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            self.prune()

    def prune(self) -> None:
        """Deletes the records of each log before the oldest snapshot that is still needed."""
        for index, shard in self.shards.shards():
            partition = self._partitions.by_name.get((SHARE_STATE_TOPIC, index))
            if shard is None or partition is None or partition.leading is None:
                continue
            offset = min(shard.redundant_offset, partition.high_watermark)
            if offset <= partition.log.log_start_offset:
                continue
            try:
                partition.log.advance_log_start_offset(offset)
                self._partitions.mark_dirty(partition)
            except KafkaError as error:
                logger.warning("%s: obsolete records stay: %s", partition.topic_partition, error)
