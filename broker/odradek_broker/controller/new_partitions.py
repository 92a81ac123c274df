"""Replicas of new partitions, from the request or chosen here, and their records. Does no I/O.

CreateTopics and CreatePartitions use it, and a reassignment for the replicas that it names.
Messages are Apache Kafka's.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

from odradek_broker.controller.assignment import assign_replicas
from odradek_broker.controller.partition_changes import default_dir
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import PartitionRecord
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, TopicId

Replicas = tuple[BrokerId, ...]


def check_manual(
    image: MetadataImage, replicas: Replicas, replication_factor: int | None, partition: int
) -> None:
    check_replicas(image, replicas, replication_factor)
    if not _in_sync(image, replicas):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "All brokers specified in the manual partition assignment for partition "
            f"{partition} are fenced or in controlled shutdown.",
        )


def check_replicas(
    image: MetadataImage, replicas: Replicas, replication_factor: int | None = None
) -> None:
    """Raises KafkaError unless a partition could have these replicas."""
    reason = None
    unknown = [broker for broker in sorted(replicas) if broker not in image.brokers]
    twice = [broker for broker, times in sorted(Counter(replicas).items()) if times > 1]
    if not replicas:
        reason = "The manual partition assignment includes an empty replica list."
    elif unknown:
        reason = (
            f"The manual partition assignment includes broker {unknown[0]}, but no such broker "
            "is registered."
        )
    elif twice:
        reason = f"The manual partition assignment includes the broker {twice[0]} more than once."
    elif replication_factor is not None and len(replicas) != replication_factor:
        reason = (
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )
    if reason:
        raise KafkaError(ErrorCode.invalid_replica_assignment, reason)


def place_replicas(
    image: MetadataImage,
    partitions: int,
    replication_factor: int,
    rng: Random,
    existing: Sequence[Replicas] = (),
) -> list[Replicas]:
    """On live brokers if there are enough of them, else on any registered brokers."""
    live = {broker.id: broker.rack for broker in image.usable_brokers()}
    everyone = {broker.id: broker.rack for broker in image.brokers.values()}
    try:
        if not live:
            raise KafkaError(
                ErrorCode.invalid_replication_factor, "All brokers are currently fenced."
            )
        brokers = live if len(live) >= replication_factor else everyone
        found = assign_replicas(brokers, partitions, replication_factor, rng, existing)
        if not all(_in_sync(image, replicas) for replicas in found):
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                "All brokers are currently fenced or in controlled shutdown.",
            )
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"Unable to replicate the partition {replication_factor} time(s): {error.message}",
        ) from None
    return found


def _in_sync(image: MetadataImage, replicas: Replicas) -> Replicas:
    """The replicas of a new partition that are live; the first is its leader."""
    return tuple(replica for replica in replicas if image.brokers[replica].active)


def partition_records(
    image: MetadataImage, topic_id: TopicId, assignments: Sequence[Replicas], first_partition: int
) -> list[PartitionRecord]:
    directory = {broker: default_dir(image, broker) for broker in image.brokers}
    records = []
    for partition, replicas in enumerate(assignments, first_partition):
        isr = _in_sync(image, replicas)
        records.append(
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                removing_replicas=(),
                adding_replicas=(),
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(directory[replica] for replica in replicas),
            )
        )
    return records
