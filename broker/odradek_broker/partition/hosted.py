"""The partitions that this broker hosts, and what several parts of `partition/` know about them.

`by_name` and `by_id` are keyed by plain tuples (a TopicPartition equals its tuple): the hot path
looks up with what it decoded, a name or the 16 bytes of a topic id, without building objects. Both
dictionaries are changed in place and never replaced, so that others may keep a reference.
"""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.partition import leader_events
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId


class Replication(Protocol):
    """The part of `replication/service.py` that partitions use."""

    def follow(self, partition: Partition) -> None:
        """`partition.following` is new: fetch for it, from its leader."""

    def unfollow(self, partition: Partition) -> None:
        """The partition is no longer a follower, or no longer hosted here."""

    def propose(self, partition: Partition, proposal: leader_events.Propose) -> None:
        """Send this to the controller; its answer comes back through `step`."""

    def assign_directory(self, partition: Partition, directory_id: UUID) -> None:
        """Report to the controller that the replica is in this log directory."""

    def update_metadata(self, image: MetadataImage) -> None: ...


class HostedPartitions:
    def __init__(self, node_id: BrokerId) -> None:
        self.node_id = node_id
        self.image: MetadataImage = EMPTY_IMAGE
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        # Assigned to this broker, but their log cannot be opened.
        self.unopened: set[tuple[str, int]] = set()
        self.replication: Replication | None = None
        # Log directories without room: nothing is fetched into them.
        self.full_dirs: frozenset[str] = frozenset()
        self._role_watchers: dict[str, Callable[[Partition], None]] = {}

    def add(self, partition: Partition) -> None:
        index = partition.topic_partition.partition
        self.by_name[partition.topic_partition] = partition
        self.by_id[partition.topic_id, index] = partition

    def remove(self, partition: Partition) -> None:
        index = partition.topic_partition.partition
        del self.by_name[partition.topic_partition]
        self.by_id.pop((partition.topic_id, index), None)

    def watch_roles(self, topic: str, watcher: Callable[[Partition], None]) -> None:
        """Calls `watcher` now and whenever a partition of the topic gains or loses its role."""
        self._role_watchers[topic] = watcher
        for partition in list(self.by_name.values()):
            if partition.topic_partition.topic == topic:
                watcher(partition)

    def role_changed(self, partition: Partition) -> None:
        watcher = self._role_watchers.get(partition.topic_partition.topic)
        if watcher is not None:
            watcher(partition)

    def end_role(self, partition: Partition, error: ErrorCode) -> None:
        """The partition neither leads nor follows any more; everything that waits is refused."""
        waiting = partition.all_fetch_waiters()
        partition.end_role(error)
        for listener in waiting:
            listener.on_progress((partition,))
        self.role_changed(partition)

    def fetch_if_room(self, partition: Partition) -> None:
        if (
            self.replication is not None
            and partition.following is not None
            and partition.log.log_dir.path not in self.full_dirs
        ):
            self.replication.follow(partition)

    def report_directory(self, partition: Partition) -> None:
        """The controller has to know where a replica is, in case that its directory fails."""
        directory_id = partition.log.log_dir.directory_id
        if (
            self.replication is not None
            and partition.directory_known_as(self.node_id) != directory_id
        ):
            self.replication.assign_directory(partition, directory_id)
