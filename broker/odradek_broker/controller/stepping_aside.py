"""When a broker that runs out of disk space lets others lead: it asks to be fenced. Pure.

A directory is *low* when producers are refused there, and *full* when followers cannot write
either (`log/room.py` says when).

- All directories low: the broker asks to be fenced as long as every partition that it hosts has
  at least min.insync.replicas (and one) active in-sync replicas without it. Others lead, acks=all
  goes on, and the broker follows as far as its space reaches. Where others do not suffice (one
  replica, the others full too) it stays: it refuses producers and serves readers.
- A directory gets full: the broker asks to be fenced once, so that it leaves every ISR at once
  and acks=all of others does not wait `replica.lag.time.max.ms` for it. Then it is let in again
  if some partition has nobody else; it does not fetch into a full directory, so it stays out of
  the ISRs of what is there.

    stepping = SteppingAside(node_id=3, rng=Random())
    stepping.decide([Level.LOW], image, min_isr=lambda topic: 2, now_ms=0)     → True: be fenced
"""

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random

from odradek_broker.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.model.ids import BrokerId

MinIsr = Callable[[str], int]

# After others turned out to be too few: two brokers that stepped aside together, and came back
# together, must not go on so.
PAUSE_MS = 20_000.0


class Level(Enum):
    ENOUGH = "enough space"
    LOW = "low"
    FULL = "full"


class SteppingAside:
    def __init__(self, node_id: BrokerId, rng: Random) -> None:
        self._node_id = node_id
        self._rng = rng
        self._full = 0  # directories
        self._leaving = False  # to be fenced once, because a directory became full
        self._aside = False
        self._not_before_ms = float("-inf")

    def decide(
        self, levels: Sequence[Level], image: MetadataImage, min_isr: MinIsr, now_ms: float
    ) -> bool:
        """Whether to ask to be fenced; called about once a second with all working directories."""
        full = sum(level is Level.FULL for level in levels)
        if full > self._full:
            self._leaving = shares_any(image, self._node_id)
        self._full = full
        own = image.brokers.get(self._node_id)
        if self._leaving and own is not None and own.fenced:
            self._leaving = False
        all_low = bool(levels) and Level.ENOUGH not in levels
        wanted = all_low and can_step_aside(image, self._node_id, _one if full else min_isr)
        if wanted and not self._aside and not full:
            wanted = now_ms >= self._not_before_ms
        elif self._aside and all_low and not wanted:
            self._not_before_ms = now_ms + PAUSE_MS * self._rng.uniform(1.0, 2.0)
        self._aside = wanted
        return wanted or self._leaving


def _one(_: str) -> int:
    return 1


def can_step_aside(image: MetadataImage, node_id: BrokerId, min_isr: MinIsr) -> bool:
    """Whether every partition that the broker hosts goes on without it."""
    for topic in image.topics.values():
        needed = -1
        for partition in topic.partitions.values():
            if node_id in partition.replicas:
                if needed < 0:
                    needed = min_isr(topic.name)
                least = max(1, min(needed, len(partition.replicas)))
                if _others_in_sync(image, partition, node_id) < least:
                    return False
    return True


def shares_any(image: MetadataImage, node_id: BrokerId) -> bool:
    """Whether the broker is in an ISR in which others are."""
    return any(
        node_id in partition.isr and _others_in_sync(image, partition, node_id) > 0
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )


def _others_in_sync(
    image: MetadataImage, partition: PartitionRegistration, node_id: BrokerId
) -> int:
    brokers = image.brokers
    return sum(
        replica != node_id and replica in brokers and brokers[replica].active
        for replica in partition.isr
    )
