"""Log directories of brokers: which replica is in which directory, and failed directories.

A broker with several directories reports where it put a replica (AssignReplicasToDirs), and which
directories failed (in each heartbeat). A replica in a failed directory is offline although its
broker is online: it leaves the ISR and its leadership, and cannot rejoin while the directory is
offline (`alter_partition.py`). A broker with no working directory is fenced.
"""

from collections.abc import Collection
from uuid import UUID

from odradek_broker.controller.brokers import check_epoch, fence
from odradek_broker.controller.partition_changes import (
    PartitionChanges,
    PartitionUpdate,
    active_brokers,
    without,
)
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from odradek_broker.metadata.records import (
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct


def has_none_left(broker: BrokerRegistration, failed: Collection[UUID]) -> bool:
    """Whether all directories of the broker failed, so that it cannot serve anything."""
    return bool(failed) and all(directory in failed for directory in broker.log_dirs)


def has_failed(broker: BrokerRegistration, failed: Collection[UUID]) -> bool:
    """Whether some, but not all, of its directories failed."""
    return any(d in failed for d in broker.log_dirs) and any(
        d not in failed for d in broker.log_dirs
    )


def directories_failed(
    image: MetadataImage,
    broker: BrokerRegistration,
    failed: Collection[UUID],
    *,
    unclean_default: bool,
) -> list[MetadataRecord]:
    """The records for newly failed directories; empty if they are recorded already."""
    if has_none_left(broker, failed):
        # Its directories stay in the metadata: when it returns with them, its replicas are online
        # again.
        return [] if broker.fenced else fence(image, [broker.id], unclean_default=unclean_default)
    gone = [directory for directory in broker.log_dirs if directory in failed]
    left = tuple(directory for directory in broker.log_dirs if directory not in failed)
    if not gone:
        return []
    live = active_brokers(image)
    if broker.id in live:
        live[broker.id] = left
    changes = PartitionChanges(image, live, unclean_default)
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if broker.id not in partition.isr:
                continue
            directory = partition.directories[partition.replicas.index(broker.id)]
            if directory in gone:
                isr = without(partition.isr, {broker.id})
                update = PartitionUpdate(isr=isr)
                change = changes.of(topic, index, update, unclean_stop=broker.id)
                records += [change] if change else []
    change_record = BrokerRegistrationChangeRecord(broker.id, broker.epoch, log_dirs=left)
    return [*records, change_record]


def assign_replicas_to_dirs(
    image: MetadataImage, request: Struct, *, unclean_default: bool
) -> ControllerResult[Struct]:
    """Raises KafkaError (STALE_BROKER_EPOCH) for the request as a whole."""
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    changes = PartitionChanges(image, active_brokers(image), unclean_default)
    records: dict[tuple[TopicId, int], PartitionChangeRecord] = {}
    directories = []
    for asked_dir in request.directories:
        directory = asked_dir.id_ or UNASSIGNED_DIRECTORY
        topics = []
        for asked_topic in asked_dir.topics:
            topic = image.topics_by_id.get(asked_topic.topic_id)
            answers = []
            for asked in asked_topic.partitions:
                index = asked.partition_index
                error, record = _assign(changes, broker, topic, index, directory)
                if record is not None and topic is not None:
                    records[topic.id, index] = record
                answers.append(Struct(partition_index=index, error_code=error))
            topics.append(Struct(topic_id=asked_topic.topic_id, partitions=answers))
        directories.append(Struct(id_=asked_dir.id_, topics=topics))
    response = Struct(error_code=ErrorCode.none, directories=directories)
    return ControllerResult(list(records.values()), response)


def _assign(
    changes: PartitionChanges,
    broker: BrokerRegistration,
    topic: TopicImage | None,
    index: int,
    directory: UUID,
) -> tuple[ErrorCode, PartitionChangeRecord | None]:
    if topic is None:
        return ErrorCode.unknown_topic_id, None
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, None
    if broker.id not in partition.replicas:
        return ErrorCode.not_leader_or_follower, None
    before = partition.directories[partition.replicas.index(broker.id)]
    if not broker.has_online_dir(before):
        # A new replica in place of a lost one. Until it has caught up and joined the ISR (which
        # records its directory), it must not be mistaken for the old one.
        return ErrorCode.none, None
    isr = partition.isr
    if not broker.has_online_dir(directory):
        isr = without(isr, {broker.id})
    update = PartitionUpdate(isr=isr, directory=(broker.id, directory))
    return ErrorCode.none, changes.of(topic, index, update)
