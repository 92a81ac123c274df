"""Encoded topics for Metadata responses: each is encoded once, however many clients ask for it.

The encoding of a topic depends on its image (the same object until the topic changes), on the
brokers of the cluster (which are alive, and their endpoints), and on the shape of the request:

    Shape(version=12, listener="EXTERNAL", operations=False)

So after a change of an ISR one topic is encoded again, and after a broker joined or left all topics
are, when they are next requested. Used by `metadata.py`, which encodes missing topics in slices.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from odradek_broker.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from odradek_protocol.ids import BrokerId

# 50,000 partitions with three replicas take 3 MB for each shape, and the clients of one cluster use
# few shapes.
CACHE_BYTES_MAX = 32 * 1024 * 1024
# Encodings of topics that were changed or deleted are removed when there are this many.
OUTDATED_MAX = 1000


class Shape(NamedTuple):
    version: int
    listener: str
    operations: bool  # whether the response has the authorized operations


class MetadataCache:
    """Invariant: every entry was encoded with `_brokers`; `bytes` is the sum of their sizes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.large = asyncio.Lock()  # held while missing topics of a large response are encoded
        self._brokers: Mapping[BrokerId, BrokerRegistration] | None = None
        self._topics: dict[Shape, dict[TopicImage, bytes]] = {}

    def encoded(self, image: MetadataImage, shape: Shape) -> dict[TopicImage, bytes]:
        """The encoded topics of this image; the caller adds missing ones with `add`."""
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
            return  # encoded for an image that is no longer the newest
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
