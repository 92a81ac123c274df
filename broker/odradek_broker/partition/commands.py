"""Commands of the controller to a broker: LeaderAndIsr, StopReplica and UpdateMetadata.

With a metadata log the controller does not send these; every broker makes them from what the
log says and carries them out in this order (`partition/service.py`):

    StopReplica     partitions that left this broker: a topic deleted, a replica moved away;
                    first, because a deleted topic's name may be in use again
    UpdateMetadata  brokers that came, went or changed, settings of topics
    LeaderAndIsr    partitions that this broker hosts and that are new or changed

Each carries the epoch of the controller that wrote it. One with an older epoch than the newest
that was seen is refused: it is from a controller that does not know that it was replaced.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage, PartitionRegistration
from odradek_protocol.ids import BrokerId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Give the partition up and delete its log."""

    controller_epoch: int
    topic_partition: TopicPartition
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """`topics` are those whose settings may have changed."""

    controller_epoch: int
    image: MetadataImage
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead the partition, or follow its leader. `is_new`: this broker did not have it before."""

    controller_epoch: int
    topic_partition: TopicPartition
    topic_id: TopicId
    registration: PartitionRegistration
    is_new: bool


Command: TypeAlias = StopReplica | UpdateMetadata | LeaderAndIsr


# Changes that are examined before the caller may pause.
CHANGES_PER_STEP = 500


def commands_of(
    delta: MetadataDelta, node_id: BrokerId, controller_epoch: int
) -> Iterator[Command | None]:
    """The commands of one broker that follow from a change of the metadata, in order; None
    where nothing is to be done but some time has passed."""
    for topic in delta.deleted_topics.values():
        for index, registration in topic.partitions.items():
            if node_id in registration.replicas:
                yield StopReplica(controller_epoch, TopicPartition(topic.name, index), topic.id)
    for at, change in enumerate(delta.changed_partitions(), 1):
        if at % CHANGES_PER_STEP == 0:
            yield None
        left = change.before is not None and node_id in change.before.replicas
        if left and node_id not in change.after.replicas:
            topic_partition = TopicPartition(change.topic.name, change.partition)
            yield StopReplica(controller_epoch, topic_partition, change.topic.id)
    # The settings of a broker are the defaults under every topic's own.
    all_topics = delta.broker_config_changed(node_id)
    topics = delta.after.topics if all_topics else delta.changed_topic_configs()
    yield UpdateMetadata(controller_epoch, delta.after, tuple(topics))
    for at, change in enumerate(delta.changed_partitions(), 1):
        if at % CHANGES_PER_STEP == 0:
            yield None
        if node_id in change.after.replicas:
            yield LeaderAndIsr(
                controller_epoch,
                TopicPartition(change.topic.name, change.partition),
                change.topic.id,
                change.after,
                is_new=change.before is None or node_id not in change.before.replicas,
            )


def commands_of_image(
    image: MetadataImage, node_id: BrokerId, controller_epoch: int
) -> Iterator[Command]:
    """The same for a broker that starts: all that it hosts, none of it new."""
    yield UpdateMetadata(controller_epoch, image, tuple(image.topics))
    for topic in image.topics.values():
        for index, registration in topic.partitions.items():
            if node_id in registration.replicas:
                topic_partition = TopicPartition(topic.name, index)
                yield LeaderAndIsr(
                    controller_epoch, topic_partition, topic.id, registration, is_new=False
                )
