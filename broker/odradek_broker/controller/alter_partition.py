"""AlterPartition: the leader of a partition proposes another ISR; the controller decides.

Only the leader of the current leader epoch that knows the current partition epoch may propose. A
replica may join only if its broker is active and still the incarnation that caught up, and if its
directory is not reported as offline. A change of the ISR may complete a reassignment, and that may
give the partition another leader: the proposal is then carried out and answered with
NEW_LEADER_ELECTED. Error codes are Apache Kafka's.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from odradek_broker.controller.brokers import check_epoch
from odradek_broker.controller.partition_changes import (
    RECOVERED,
    RECOVERING,
    PartitionChanges,
    PartitionUpdate,
    Strategy,
    active_brokers,
)
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.metadata.records import (
    NO_LEADER_CHANGE,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

UNKNOWN_BROKER_EPOCH = -1  # the leader does not know the broker's incarnation

# Failed directories by broker, as listed in its last heartbeat.
OfflineDirs = Mapping[BrokerId, Collection[UUID]]
NONE_OFFLINE: OfflineDirs = MappingProxyType({})


def alter_partition(
    image: MetadataImage,
    request: Struct,
    *,
    unclean_default: bool,
    offline_dirs: OfflineDirs = NONE_OFFLINE,
) -> ControllerResult[Struct]:
    """Raises KafkaError (STALE_BROKER_EPOCH) for the request as a whole."""
    check_epoch(image, request.broker_id, request.broker_epoch)
    changes = PartitionChanges(image, active_brokers(image), unclean_default)
    records: list[PartitionChangeRecord] = []
    topics = []
    seen: set[tuple[object, int]] = set()
    for asked_topic in request.topics:
        topic = image.topics_by_id.get(asked_topic.topic_id)
        answers = []
        for asked in asked_topic.partitions:
            index = asked.partition_index
            if topic is None:
                answers.append(_refused(index, ErrorCode.unknown_topic_id))
                continue
            before = topic.partitions.get(index)
            error = _validate(image, request.broker_id, before, asked)
            if error is ErrorCode.none and not joins_from_working_dirs(before, asked, offline_dirs):
                error = ErrorCode.ineligible_replica
            if (
                (topic.id, index) in seen
            ):  # decided against the image: a second change in the request would ignore the first
                error = ErrorCode.invalid_request
            if error is not ErrorCode.none or before is None:
                answers.append(_refused(index, error))
                continue
            seen.add((topic.id, index))
            record = changes.of(
                topic,
                index,
                PartitionUpdate(isr=_proposed(asked), recovery=asked.leader_recovery_state),
                Strategy.REASSIGNMENT,
            )
            records += [record] if record else []
            answers.append(_answer(index, before, record))
        topics.append(Struct(topic_id=asked_topic.topic_id, partitions=answers))
    return ControllerResult(records, Struct(error_code=ErrorCode.none, topics=topics))


def _proposed(asked: Struct) -> tuple[BrokerId, ...]:
    """The new ISR; version 2 has no broker epochs."""
    if asked.new_isr_with_epochs:
        return tuple(state.broker_id for state in asked.new_isr_with_epochs)
    return tuple(asked.new_isr)


def _validate(
    image: MetadataImage,
    broker_id: BrokerId,
    partition: PartitionRegistration | None,
    asked: Struct,
) -> ErrorCode:
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if (
        asked.leader_epoch > partition.leader_epoch
        or asked.partition_epoch > partition.partition_epoch
    ):
        # The leader has newer metadata: another node must be the controller.
        return ErrorCode.not_controller
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != partition.leader:
        return ErrorCode.invalid_request
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    isr = _proposed(asked)
    recovering = asked.leader_recovery_state == RECOVERING
    if (
        len(set(isr)) != len(isr)
        or not set(isr) <= set(partition.replicas)
        or partition.leader not in isr
        or asked.leader_recovery_state not in (RECOVERED, RECOVERING)
        or (recovering and len(isr) > 1)
        or (recovering and partition.leader_recovery_state == RECOVERED)
    ):
        return ErrorCode.invalid_request
    if not _eligible(image, isr, asked.new_isr_with_epochs):
        return ErrorCode.ineligible_replica
    return ErrorCode.none


def _eligible(image: MetadataImage, isr: Sequence[BrokerId], states: Sequence[Struct]) -> bool:
    brokers = [image.brokers.get(broker_id) for broker_id in isr]
    if not all(broker is not None and broker.active for broker in brokers):
        return False
    return all(
        state.broker_epoch in (UNKNOWN_BROKER_EPOCH, image.brokers[state.broker_id].epoch)
        for state in states
    )


def joins_from_working_dirs(
    partition: PartitionRegistration | None, asked: Struct, offline_dirs: OfflineDirs
) -> bool:
    """Whether all replicas that join are in working directories."""
    if partition is None or not offline_dirs:
        return True
    return all(
        _has_directory(partition, replica, offline_dirs.get(replica, ()))
        for replica in _proposed(asked)
        if replica not in partition.isr
    )


def _has_directory(
    partition: PartitionRegistration, replica: BrokerId, offline: Collection[UUID]
) -> bool:
    """Whether a replica is known to be in a working directory.

    Its leader may still count it as caught up from before the directory failed. A replica whose
    directory is not assigned yet may be in any directory, so it waits while one is offline.
    """
    if not offline:
        return True
    directory = partition.directories[partition.replicas.index(replica)]
    return directory != UNASSIGNED_DIRECTORY and directory not in offline


def _answer(
    index: int, before: PartitionRegistration, record: PartitionChangeRecord | None
) -> Struct:
    """The partition after the change."""
    answer = Struct(
        partition_index=index,
        error_code=ErrorCode.none,
        leader_id=before.leader,
        leader_epoch=before.leader_epoch,
        isr=before.isr,
        leader_recovery_state=before.leader_recovery_state,
        partition_epoch=before.partition_epoch,
    )
    if record is None:
        return answer
    answer.partition_epoch += 1
    if record.leader != NO_LEADER_CHANGE:
        if record.leader != before.leader:
            return _refused(index, ErrorCode.new_leader_elected)
        answer.leader_epoch += 1
    if record.isr is not None:
        answer.isr = record.isr
    if record.leader_recovery_state >= 0:
        answer.leader_recovery_state = record.leader_recovery_state
    return answer


def _refused(index: int, error: ErrorCode) -> Struct:
    return Struct(partition_index=index, error_code=error)
