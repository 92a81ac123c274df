"""Topics as Metadata answers have them: encoded once, however many clients ask.

What a topic looks like depends on its image (the same object as long as nothing of it changed), on
the brokers of the cluster (who is alive, and where), and on how it is asked for:

    Shape(version=12, listener="EXTERNAL", operations=False)

So a change of an ISR encodes one topic anew, and a broker that comes or goes all of them, when they
are next asked for. Used by `metadata.py`, which encodes what is missing in slices.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from odradek_broker.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from odradek_protocol.ids import BrokerId

# 50,000 partitions with three replicas take 3 MB for each shape, and clients of one cluster ask in
# few of them.
CACHE_BYTES_MAX = 32 * 1024 * 1024
# Topics that changed or are gone leave what they were behind; removed when there are so many.
OUTDATED_MAX = 1000


class Shape(NamedTuple):
    version: int
    listener: str
    operations: bool  # whether the answer has the authorized operations


class MetadataCache:
    """Invariant: all that is kept was encoded with `_brokers`; `bytes` is the sum of it."""

    def __init__(self) -> None:
        self.bytes = 0
        self.large = asyncio.Lock()  # held while what a large answer lacks is encoded
        self._brokers: Mapping[BrokerId, BrokerRegistration] | None = None
        self._topics: dict[Shape, dict[TopicImage, bytes]] = {}

    def encoded(self, image: MetadataImage, shape: Shape) -> dict[TopicImage, bytes]:
        """What there is of this image; `add` what is missing."""
        if image.brokers is not self._brokers:
            self._clear()
            self._brokers = image.brokers
        topics = self._topics.get(shape)
        if topics is None:
            topics = self._topics[shape] = {}
        if len(topics) > len(image.topics) + OUTDATED_MAX:
            self._drop_outdated(image, topics)
        return topics

    def add(self, image: MetadataImage, shape: Shape, topic: TopicImage, data: bytes) -> None:
        if image.brokers is not self._brokers:
            return  # encoded meanwhile for an image that is not the newest
        if self.bytes + len(data) > CACHE_BYTES_MAX:
            self._clear()
        if len(data) <= CACHE_BYTES_MAX:
            self._topics.setdefault(shape, {})[topic] = data
            self.bytes += len(data)

    def _clear(self) -> None:
        self._topics.clear()
        self.bytes = 0

    def _drop_outdated(self, image: MetadataImage, topics: dict[TopicImage, bytes]) -> None:
        outdated = [topic for topic in topics if image.topics.get(topic.name) is not topic]
        for topic in outdated:
            self.bytes -= len(topics.pop(topic))
