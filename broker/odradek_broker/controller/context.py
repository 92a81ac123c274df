"""The states of all replicas and partitions, which the active controller keeps for observers.

They are derived, and no decision depends on them: a new controller computes them from the image
(`ControllerContext`), each committed change updates them (`steps`, in small steps), and heartbeats
report which deletions brokers have carried out (`deletions.broker_at`). Metrics and the admin API
read them, and may see them with a small delay.
"""

from collections.abc import Callable, Iterable, Iterator

from odradek_broker.controller.deletion import Deletions
from odradek_broker.controller.partition_states import (
    PartitionKey,
    PartitionState,
    PartitionStates,
    partition_states,
)
from odradek_broker.controller.replica_states import (
    PartitionAndReplica,
    ReplicaState,
    ReplicaStates,
    replica_states,
)
from odradek_broker.metadata.delta import MetadataDelta, PartitionChange
from odradek_broker.metadata.image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from odradek_broker.metadata.records import NO_LEADER
from odradek_protocol.ids import BrokerId

# Partitions to change, or replicas to check, in one step: some 2 ms.
PARTITIONS_PER_STEP = 50
REPLICAS_PER_STEP = 2000


def at_once(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


class ControllerContext:
    def __init__(
        self, image: MetadataImage = EMPTY_IMAGE, wall_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`wall_ms` is used only to display since when a replica is in its state."""
        self.image = EMPTY_IMAGE
        self.replicas: ReplicaStates = replica_states(wall_ms)
        self.partitions: PartitionStates = partition_states(wall_ms)
        self.deletions = Deletions(self.replicas)
        at_once(self.load(image))

    def load(self, image: MetadataImage) -> Iterator[None]:
        """The states as a new controller finds them."""
        self.image = image
        count = 0
        for topic in image.topics.values():
            for index, partition in topic.partitions.items():
                count += 1
                if count % PARTITIONS_PER_STEP == 0:
                    yield None
                led = partition.leader != NO_LEADER
                state = PartitionState.ONLINE if led else PartitionState.OFFLINE
                self.partitions.adopt(PartitionKey(topic.id, index), state)
                for replica in partition.replicas:
                    key = PartitionAndReplica(topic.id, index, replica)
                    self.replicas.adopt(key, self._replica_state(partition, replica))

    # -- changes -----------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        at_once(self.steps(delta))

    def steps(self, delta: MetadataDelta) -> Iterator[None]:
        self.image = delta.after
        for topic in delta.deleted_topics.values():
            yield from self._topic_deleted(topic)
            yield None
        for broker_id in delta.changed_brokers:
            yield from self._broker_changed(
                broker_id,
                delta.before.brokers.get(broker_id),
                delta.after.brokers.get(broker_id),
            )
        for at, change in enumerate(delta.changed_partitions(), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            self._partition_changed(change)

    def _topic_deleted(self, topic: TopicImage) -> Iterator[None]:
        for index, partition in topic.partitions.items():
            if index % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield None
            key = PartitionKey(topic.id, index)
            if self.partitions.state(key) is PartitionState.ONLINE:
                self.partitions.move(key, PartitionState.OFFLINE)
            self.partitions.move(key, PartitionState.NON_EXISTENT)
            for replica in partition.replicas:
                self._delete(PartitionAndReplica(topic.id, index, replica))

    def _delete(self, key: PartitionAndReplica) -> None:
        broker = self.image.brokers.get(key.replica)
        live = broker is not None and not broker.fenced
        self.deletions.start(key, self.image.offset, live=live)

    def _broker_changed(
        self,
        broker_id: BrokerId,
        before: BrokerRegistration | None,
        after: BrokerRegistration | None,
    ) -> Iterator[None]:
        was_live = before is not None and not before.fenced
        is_live = after is not None and not after.fenced
        same_dirs = before is not None and after is not None and before.log_dirs == after.log_dirs
        if was_live and not is_live:
            self.deletions.broker_down(broker_id)
        elif is_live and not was_live:
            self.deletions.broker_up(broker_id)
        if after is None:
            self.deletions.broker_gone(broker_id)
        if was_live != is_live or not same_dirs:
            yield from self._move_all(broker_id, [key for key, _ in self.replicas])

    def _move_all(self, broker_id: BrokerId, keys: Iterable[PartitionAndReplica]) -> Iterator[None]:
        """Moves replicas to online or offline, unless they are being deleted."""
        moved = 0
        for at, key in enumerate(keys, 1):
            if at % REPLICAS_PER_STEP == 0 or moved >= PARTITIONS_PER_STEP:
                moved = 0
                yield None
            if key.replica != broker_id:
                continue
            moved += 1
            topic = self.image.topics_by_id.get(key.topic_id)
            partition = topic.partitions.get(key.partition) if topic else None
            if partition is None or key.replica not in partition.replicas:
                continue
            state = self._replica_state(partition, key.replica)
            if self.replicas.state(key) is not state:
                self.replicas.move(key, state)

    def _replica_state(self, partition: PartitionRegistration, replica: BrokerId) -> ReplicaState:
        broker = self.image.brokers.get(replica)
        if broker is None or broker.fenced:
            return ReplicaState.OFFLINE
        directory = partition.directories[partition.replicas.index(replica)]
        return ReplicaState.ONLINE if broker.has_online_dir(directory) else ReplicaState.OFFLINE

    def _partition_changed(self, change: PartitionChange) -> None:
        topic_id, index = change.topic.id, change.partition
        before, after = change.before, change.after
        key = PartitionKey(topic_id, index)
        if before is None:
            self.partitions.move(key, PartitionState.NEW)
        led = after.leader != NO_LEADER
        was_led = before is not None and before.leader != NO_LEADER
        epochs_differ = before is None or before.leader_epoch != after.leader_epoch
        if led and epochs_differ:
            self.partitions.move(key, PartitionState.ONLINE)
        elif was_led and not led:
            self.partitions.move(key, PartitionState.OFFLINE)
        old = before.replicas if before is not None else ()
        for replica in old:
            if replica not in after.replicas:
                self._delete(PartitionAndReplica(topic_id, index, replica))
        for replica in after.replicas:
            replica_key = PartitionAndReplica(topic_id, index, replica)
            if replica not in old:
                self.deletions.forget(replica_key)
                self.replicas.move(replica_key, ReplicaState.NEW)
            state = self._replica_state(after, replica)
            # Online → Online is a change of the leader.
            if self.replicas.state(replica_key) is not state or epochs_differ:
                self.replicas.move(replica_key, state)
