"""The controller of a single node: decide → append → replay → answer.

Every change goes one way. A pure function decides against the latest image, its records are
appended to the metadata log as one batch and replayed into the next image at once, and when
they are committed, the image becomes the published one, subscribers hear of the delta and the
request is answered. So two requests that overlap decide in order, and nobody ever sees what
could still be lost:

    latest     all that was appended: decisions are made against it
    image      all that is committed: requests are answered from it

Issue 4 puts a quorum behind the `MetadataLog` port; a controller that loses its epoch then
goes back from `latest` to `image`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from odradek_broker.controller import brokers, configs, producer_ids, topics
from odradek_broker.controller.metadata_log import MetadataLog
from odradek_broker.controller.result import Result
from odradek_broker.log.errors import LogDirError
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.model.config_table import ConfigError
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import BrokerId, LeaderEpoch, Offset, ProducerId
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.settings import Settings
from odradek_broker.wire.struct import Struct

logger = logging.getLogger(__name__)

T = TypeVar("T")
Subscriber = Callable[[MetadataDelta], None]


class ControllerService:
    def __init__(
        self,
        settings: Settings,
        rng: Random,
        log: MetadataLog,
        node_id: BrokerId,
        cluster_id: str,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.image: MetadataImage = EMPTY_IMAGE
        self._settings = settings
        self._rng = rng
        self._log = log
        self._latest: MetadataImage = EMPTY_IMAGE
        self._uncommitted: deque[MetadataDelta] = deque()  # between `image` and `_latest`
        self._subscribers: list[Subscriber] = []
        self._failure: LogDirError | None = None
        self._producer_ids = iter(range(0))
        self._producer_ids_lock = asyncio.Lock()

    @property
    def controller_id(self) -> BrokerId:
        return self.node_id

    @property
    def epoch(self) -> LeaderEpoch:
        return self._log.epoch

    # -- start ------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        """`subscriber(delta)` is called for each published change, in order, on the loop."""
        self._subscribers.append(subscriber)

    async def start(self) -> MetadataDelta:
        """Replays the log, or writes the first records of a new one; all that exists as a delta.

        Those who subscribe afterwards take it first: the logs have to be loaded in between.
        """
        delta = MetadataDelta(EMPTY_IMAGE)
        last_offset: Offset = -1
        for entry in self._log.read_all():
            delta.replay(entry.record)
            last_offset = entry.offset
        if last_offset >= 0:
            self._latest = delta.finish(last_offset).after
            self._publish(delta)
        else:
            await self._commit(Result(brokers.bootstrap(), None))
        return delta

    async def register_broker(
        self, listeners: Sequence[Listener], log_dirs: Sequence[UUID], *, clean_shutdown: bool
    ) -> int:
        """This node becomes a live broker with these advertised listeners; its broker epoch."""
        return await self._commit(
            brokers.register_broker(
                self._latest,
                self.node_id,
                incarnation_id=UUID(int=self._rng.getrandbits(128), version=4),
                next_offset=self._log.next_offset,
                listeners=listeners,
                rack=self._settings.optional_str("broker.rack"),
                log_dirs=log_dirs,
                clean_shutdown=clean_shutdown,
            )
        )

    # -- requests: decoded in, response out ---------------------------------------------------

    async def create_topics(self, request: Struct) -> Struct:
        return await self._commit(
            topics.create_topics(self._latest, request, self._settings, self._rng)
        )

    async def delete_topics(self, request: Struct) -> Struct:
        enabled = self._settings.bool("delete.topic.enable")
        return await self._commit(topics.delete_topics(self._latest, request, enabled=enabled))

    async def create_partitions(self, request: Struct) -> Struct:
        return await self._commit(topics.create_partitions(self._latest, request, self._rng))

    async def incremental_alter_configs(self, request: Struct) -> Struct:
        return await self._commit(
            configs.incremental_alter_configs(self._latest, request, self._settings)
        )

    async def alter_configs(self, request: Struct) -> Struct:
        return await self._commit(configs.alter_configs(self._latest, request, self._settings))

    async def next_producer_id(self) -> ProducerId:
        """An id that no producer of this cluster ever had."""
        async with self._producer_ids_lock:
            producer_id = next(self._producer_ids, None)
            if producer_id is None:
                self._producer_ids = iter(await self._allocate_producer_ids())
                producer_id = next(self._producer_ids)
        return producer_id

    async def _allocate_producer_ids(self) -> range:
        broker = self._latest.brokers.get(self.node_id)
        epoch = broker.epoch if broker else -1
        return await self._commit(producer_ids.allocate_block(self._latest, self.node_id, epoch))

    # -- append, replay, publish ---------------------------------------------------------------

    async def _commit(self, result: Result[T]) -> T:
        """Makes a decision so. No other decision may come between it and the append, so
        callers decide and call this without an await in between."""
        if not result.records:
            return result.response
        self._check_writable()
        delta = MetadataDelta(self._latest)
        for record in result.records:
            delta.replay(record)
        last_offset = self._log.next_offset + len(result.records) - 1
        try:
            committed = self._log.append(result.records)
            self._latest = delta.finish(last_offset).after
            self._uncommitted.append(delta)
            await committed
        except LogDirError as error:
            self._failed(error)
        self._publish_up_to(last_offset)
        return result.response

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"The metadata log has failed: {self._failure}"
            )

    def _failed(self, error: LogDirError) -> None:
        """What is on disk is not known any more: this controller changes nothing from now on."""
        if self._failure is None:
            logger.error("metadata log failed, metadata is read-only until a restart: %s", error)
            self._failure = error
        self._check_writable()

    def _publish_up_to(self, offset: Offset) -> None:
        while self._uncommitted and self._uncommitted[0].after.offset <= offset:
            self._publish(self._uncommitted.popleft())

    def _publish(self, delta: MetadataDelta) -> None:
        self.image = delta.after
        if delta.broker_config_changed(self.node_id):
            self._apply_broker_configs()
        for subscriber in self._subscribers:
            try:
                subscriber(delta)
            except Exception:
                # One that fails must not keep the others from knowing.
                logger.exception("applying metadata up to offset %d failed", delta.after.offset)

    def _apply_broker_configs(self) -> None:
        try:
            self._settings.apply_dynamic(*configs.broker_layers(self.image, self.node_id))
        except ConfigError as error:
            # Validated when it was set, so perhaps by another version; the rest must go on.
            logger.error("dynamic broker configuration not applied: %s", error)
