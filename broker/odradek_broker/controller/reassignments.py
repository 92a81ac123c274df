"""Moving partitions between brokers: AlterPartitionReassignments, ListPartitionReassignments.

A partition on 1 2 3 that is to be on 1 4 5:

    1. replicas 1 4 5 2 3, adding 4 5, removing 2 3      the response is sent
    2. 4 and 5 catch up and join the ISR                 AlterPartition, see alter_partition.py
    3. replicas 1 4 5                                    in the same record as the last change of
                                                         the ISR; 2 and 3 delete their files

A target without new replicas is reached at once. Replicas `null` cancels a reassignment: added
replicas are removed, replicas to be removed stay. Checks and error messages are Apache Kafka's.
"""

from collections.abc import Sequence

from odradek_broker.controller.new_partitions import check_replicas
from odradek_broker.controller.partition_changes import (
    PartitionChanges,
    PartitionUpdate,
    Replicas,
    Strategy,
    TopicRules,
    active_brokers,
)
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.metadata.records import PartitionChangeRecord
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

# One request becomes one batch of the metadata log, whose size is limited.
PARTITIONS_PER_REQUEST_MAX = 10_000


def alter_partition_reassignments(
    image: MetadataImage, request: Struct, *, unclean_default: bool
) -> ControllerResult[Struct]:
    changes = PartitionChanges(image, active_brokers(image), unclean_default)
    rules = TopicRules(image, unclean_default=unclean_default)
    may_change_factor = request.allow_replication_factor_change
    records: list[PartitionChangeRecord] = []
    responses = []
    seen: set[tuple[str, int]] = set()
    for asked_topic in request.topics:
        answers = []
        for asked in asked_topic.partitions:
            code, message = ErrorCode.none, None
            try:
                key = (asked_topic.name, asked.partition_index)
                if key in seen:
                    raise KafkaError(ErrorCode.invalid_request, "Duplicate partition in request.")
                seen.add(key)
                topic, partition = _find(image, *key)
                if asked.replicas is None:
                    unclean = rules.unclean(topic.name)
                    record = _cancel(changes, topic, key[1], partition, unclean=unclean)
                else:
                    target = tuple(asked.replicas)
                    check_replicas(image, target)
                    if not may_change_factor:
                        _check_same_factor(partition, target)
                    record = _reassign(changes, topic, key[1], partition, target)
                if record is not None and len(records) >= PARTITIONS_PER_REQUEST_MAX:
                    raise KafkaError(
                        ErrorCode.policy_violation,
                        "Excessively large number of partitions per request.",
                    )
                records += [record] if record else []
            except KafkaError as error:
                code, message = error.code, error.message
            answers.append(
                Struct(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(Struct(name=asked_topic.name, partitions=answers))
    response = Struct(
        error_code=ErrorCode.none,
        error_message=None if responses else "",
        # For an empty request Kafka responds with the default values of the schema.
        allow_replication_factor_change=may_change_factor if responses else True,
        responses=responses,
    )
    return ControllerResult(records, response)


def _find(image: MetadataImage, name: str, index: int) -> tuple[TopicImage, PartitionRegistration]:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}."
        )
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}."
        )
    return topic, partition


def _check_same_factor(partition: PartitionRegistration, target: Replicas) -> None:
    current = len(set(partition.replicas) - set(partition.removing_replicas))
    if len(target) != current:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {current} to {len(target)}",
        )


def _reassign(
    changes: PartitionChanges,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    target: Replicas,
) -> PartitionChangeRecord | None:
    """Replaces a reassignment in progress: replicas that only that one added are removed."""
    added = set(partition.adding_replicas)
    isr = tuple(r for r in partition.isr if r not in added or r in target)
    if not isr:  # only added replicas are in sync: the new ones have to copy from them
        added, isr = set(), partition.isr
    original = {replica for replica in partition.replicas if replica not in added}
    removing = tuple(sorted(original - set(target)))
    return changes.of(
        topic,
        index,
        PartitionUpdate(
            isr=isr,
            replicas=target + removing,
            removing=removing,
            adding=tuple(sorted(set(target) - original)),
        ),
        Strategy.REASSIGNMENT,
        unclean=False,
    )


def _cancel(
    changes: PartitionChanges,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    *,
    unclean: bool,
) -> PartitionChangeRecord | None:
    if not is_reassigning(partition):
        raise KafkaError(ErrorCode.no_reassignment_in_progress)
    adding = set(partition.adding_replicas)
    replicas = tuple(r for r in partition.replicas if r not in adding)
    isr = tuple(r for r in partition.isr if r not in adding)
    if not isr:
        # Only new replicas are in sync: to cancel would lose records that only they have.
        if not unclean:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {topic.name}:{index} because it "
                "would require an unclean leader election.",
            )
        isr = replicas[:1]
    return changes.of(
        topic,
        index,
        PartitionUpdate(isr=isr, replicas=replicas, removing=(), adding=()),
        Strategy.REASSIGNMENT,
        unclean=unclean,
    )


def is_reassigning(partition: PartitionRegistration) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def list_partition_reassignments(image: MetadataImage, request: Struct) -> Struct:
    """All reassignments in progress, or those of the named partitions."""
    if request.topics is None:
        asked = [(topic, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        asked = [
            (image.topics[topic.name], topic.partition_indexes)
            for topic in request.topics
            if topic.name in image.topics
        ]
    topics = []
    for topic, indexes in asked:
        moving = _moving(topic, indexes)
        if moving:
            topics.append(Struct(name=topic.name, partitions=moving))
    return Struct(error_code=ErrorCode.none, error_message=None, topics=topics)


def _moving(topic: TopicImage, indexes: Sequence[int]) -> list[Struct]:
    return [
        Struct(
            partition_index=index,
            replicas=partition.replicas,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
        )
        for index in indexes
        if (partition := topic.partitions.get(index)) is not None and is_reassigning(partition)
    ]
