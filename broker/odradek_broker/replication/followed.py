"""One followed partition as its fetcher keeps it, and the state that all fetchers share."""

from dataclasses import dataclass

from odradek_broker.partition.follower_state import FetchPosition
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.replication.session import Key
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import Threads


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """State that all fetchers of a broker share."""

    settings: Settings
    clock: Clock
    threads: Threads
    partitions: PartitionService

    def is_throttled(self, partition: Partition) -> bool:
        """Whether the quota of followers limits it: only while it is out of sync."""
        service = self.partitions
        topic, index = partition.topic_partition
        return service.peers.node_id not in partition.isr and service.follower_throttle.concerns(
            service.image.topic_config(topic), index
        )


class Followed:
    """One partition: the last request for it, and its content."""

    __slots__ = ("dropped", "flushing", "key", "partition", "position", "sent_in")

    def __init__(self, partition: Partition) -> None:
        self.key = key_of(partition)
        self.partition = partition
        self.position: FetchPosition | None = None
        self.sent_in = -1
        self.flushing = False
        self.dropped = False  # no longer fetched here; an answer that still comes is ignored


def key_of(partition: Partition) -> Key:
    return partition.topic_id, partition.topic_partition.partition
