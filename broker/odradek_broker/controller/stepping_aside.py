"""When a broker that runs out of disk space asks to be fenced, so that others lead. Does no I/O.

A directory is *low* when produce requests are refused there, and *full* when followers cannot
write either (`log/room.py` has the limits).

- All directories low: the broker asks to be fenced as long as every partition that it hosts has
  at least min.insync.replicas (and one) active in-sync replicas without it. Others lead, acks=all
  continues, and the broker follows while it has space. If the others do not suffice (one replica,
  or they are full too) it stays unfenced: it refuses producers and serves consumers.
- It stays, but leads partitions that others could lead: it asks to be fenced once, so that their
  leadership moves, and is unfenced at once, because some partition has no other replica.
- A directory gets full: the same, so that it leaves every ISR at once and acks=all of others does
  not wait `replica.lag.time.max.ms` for it. It does not fetch into a full directory, so it stays
  out of the ISRs of what is there.

    stepping = SteppingAside(node_id=3, rng=Random())
    stepping.decide([Level.LOW], image, min_isr=lambda topic: 2, now_ms=0)     → True: be fenced
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from random import Random
from uuid import UUID

from odradek_broker.metadata.image import MetadataImage, PartitionRegistration
from odradek_protocol.ids import BrokerId

MinIsr = Callable[[str], int]

# Two brokers that step aside together and leave too few replicas, or that move leadership back and
# forth because both are low, must not repeat it: the pause is random, and doubles with each step.
PAUSE_MS = 20_000.0
PAUSE_DOUBLINGS_MAX = 5


class Level(Enum):
    ENOUGH = "enough space"
    LOW = "low"
    FULL = "full"


class SteppingAside:
    def __init__(self, node_id: BrokerId, rng: Random) -> None:
        self._node_id = node_id
        self._rng = rng
        self._full = 0  # directories
        self.leaving = False  # asks to be fenced once, then unfenced again
        self._aside = False
        self._steps = 0  # since the last time with enough space
        self._not_before_ms = float("-inf")

    def decide(
        self,
        levels: Sequence[Level],
        image: MetadataImage,
        min_isr: MinIsr,
        now_ms: float,
        low_dirs: Collection[UUID] | None = None,
        full_dirs: Collection[UUID] = (),
    ) -> bool:
        """Whether to ask to be fenced; called about once a second with all working directories.

        `low_dirs` are low or full; None means that any directory may be. `full_dirs`: while a
        replica there is in an ISR with other members, the broker asks to be fenced (a proposal of
        the leader that was in flight when the directory got full may have added it).
        """
        if all(level is Level.ENOUGH for level in levels):
            self._full = self._steps = 0
            self.leaving = self._aside = False
            return False
        full = sum(level is Level.FULL for level in levels)
        if full > self._full:
            self.leaving = shares_any(image, self._node_id)
        elif full_dirs and shares_any(image, self._node_id, full_dirs):
            self.leaving = True
        self._full = full
        own = image.brokers.get(self._node_id)
        if self.leaving and own is not None and own.fenced:
            self.leaving = False
        may_step = now_ms >= self._not_before_ms
        suffice = Level.ENOUGH not in levels and can_step_aside(
            image, self._node_id, _one if full else min_isr
        )
        if self._aside and not suffice:
            self._pause(now_ms)
        self._aside = suffice and (self._aside or may_step or full > 0)
        if (
            may_step
            and not suffice
            and not self.leaving
            and leads_for_others(image, self._node_id, min_isr, low_dirs)
        ):
            self.leaving = True
            self._pause(now_ms)
        return self._aside or self.leaving

    def _pause(self, now_ms: float) -> None:
        doubled = 2 ** min(self._steps, PAUSE_DOUBLINGS_MAX)
        self._not_before_ms = now_ms + PAUSE_MS * doubled * self._rng.uniform(1.0, 2.0)
        self._steps += 1


def _one(_: str) -> int:
    return 1


def can_step_aside(image: MetadataImage, node_id: BrokerId, min_isr: MinIsr) -> bool:
    """Whether every partition that the broker hosts stays available without it."""
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


def leads_for_others(
    image: MetadataImage, node_id: BrokerId, min_isr: MinIsr, low_dirs: Collection[UUID] | None
) -> bool:
    """Whether the broker leads a partition, in a directory that is low, that others could lead."""
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            if partition.leader != node_id:
                continue
            directory = partition.directories[partition.replicas.index(node_id)]
            if low_dirs is None or directory in low_dirs:
                least = max(1, min(min_isr(topic.name), len(partition.replicas)))
                if _others_in_sync(image, partition, node_id) >= least:
                    return True
    return False


def shares_any(
    image: MetadataImage, node_id: BrokerId, dirs: Collection[UUID] | None = None
) -> bool:
    """Whether the broker shares an ISR with others, with a replica in one of `dirs`."""
    return any(
        node_id in partition.isr
        and (dirs is None or partition.directories[partition.replicas.index(node_id)] in dirs)
        and _others_in_sync(image, partition, node_id) > 0
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
