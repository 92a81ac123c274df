"""The metadata of this broker: committed records become images, subscribers hear what changed.

Every broker has one, whether it leads the quorum or not; `raft/service.py` feeds it. Requests
are answered from `image`. Subscribers are told each change once, in the order of the log, with
the epoch of the controller that wrote it:

    publisher.subscribe(lambda delta, controller_epoch: …)
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.records import MetadataRecord, ResourceType
from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataDelta, LeaderEpoch], None]


class MetadataPublisher:
    def __init__(self, node_id: BrokerId, settings: Settings) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.controller_epoch: LeaderEpoch = 0  # that wrote the last change
        self._node_id = node_id
        self._settings = settings
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """It hears of changes after those in the `image` of this moment."""
        self._subscribers.append(subscriber)

    async def wait_until(
        self, condition: Callable[[MetadataImage], bool], timeout_ms: float
    ) -> bool:
        """Whether an image came within that time for which the condition holds."""
        if condition(self.image):
            return True
        came = asyncio.Event()

        def look(delta: MetadataDelta, _: LeaderEpoch) -> None:
            if condition(delta.after):
                came.set()

        self._subscribers.append(look)
        try:
            async with asyncio.timeout(timeout_ms / 1000):  # wait_for may lose a cancellation
                await came.wait()
        except TimeoutError:
            return False
        finally:
            self._subscribers.remove(look)
        return True

    def replay(
        self, records: Iterable[MetadataRecord], last_offset: Offset, epoch: LeaderEpoch
    ) -> None:
        """Committed records of one controller epoch; `last_offset` is that of the last one."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.publish(delta.finish(last_offset), epoch)

    def load(
        self, records: Iterable[MetadataRecord], last_offset: Offset, epoch: LeaderEpoch
    ) -> None:
        """A snapshot: all that exists up to `last_offset`."""
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in records:
            delta.replay(record)
        after = delta.finish(last_offset).after
        self.publish(MetadataDelta.between(self.image, after), epoch)

    def publish(self, delta: MetadataDelta, epoch: LeaderEpoch) -> None:
        """A finished delta of committed records; it begins where `image` ends."""
        self.image = delta.after
        self.controller_epoch = epoch
        if delta.broker_config_changed(self._node_id):
            self._apply_broker_configs()
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(delta, epoch)
            except Exception:
                # One that fails must not keep the others from knowing.
                logger.exception("applying metadata up to offset %d failed", delta.after.offset)

    def _apply_broker_configs(self) -> None:
        """In force before subscribers hear of them."""
        image = self.image
        default = image.config(ResourceType.BROKER, "")
        own = image.config(ResourceType.BROKER, str(self._node_id))
        try:
            self._settings.apply_dynamic(default, own)
        except ConfigError as error:
            # Validated when it was set, so perhaps by another version; the rest must go on.
            logger.error("dynamic broker configuration not applied: %s", error)
