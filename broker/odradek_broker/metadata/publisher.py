"""The metadata of this broker: turns committed records into images and notifies subscribers.

Every broker has one, whether it leads the quorum or not; `raft/service.py` feeds it. Requests
are answered from `image`. Subscribers get each change once, in the order of the log, with the
epoch of the controller that wrote it:

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
        self.controller_epoch: LeaderEpoch = 0  # of the last change
        self._node_id = node_id
        self._settings = settings
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """The subscriber gets all changes after the current `image`."""
        self._subscribers.append(subscriber)

    async def wait_until(
        self, condition: Callable[[MetadataImage], bool], timeout_ms: float
    ) -> bool:
        """Waits for an image for which the condition holds; False after the timeout."""
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
        """Applies committed records of one controller epoch; `last_offset` is that of the last."""
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
        """Publishes a finished delta of committed records, which starts from `image`."""
        self.image = delta.after
        self.controller_epoch = epoch
        if delta.broker_config_changed(self._node_id):
            self._apply_broker_configs()
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(delta, epoch)
            except Exception:
                # A failing subscriber must not keep the others from being notified.
                logger.exception("applying metadata up to offset %d failed", delta.after.offset)

    def _apply_broker_configs(self) -> None:
        """Settings take effect before subscribers are notified."""
        image = self.image
        default = image.config(ResourceType.BROKER, "")
        own = image.config(ResourceType.BROKER, str(self._node_id))
        try:
            self._settings.apply_dynamic(default, own)
        except ConfigError as error:
            # Another version may have accepted this setting; the metadata must still be applied.
            logger.error("the dynamic broker configuration was not applied: %s", error)
