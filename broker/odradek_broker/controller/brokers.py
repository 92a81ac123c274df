"""Decisions about brokers: register, fence, unfence, controlled shutdown, unregister.

A broker registers when it starts, and gets a broker epoch: the offset of its registration's
record. It is fenced until its metadata has reached that offset, and again when it is silent for
too long or stops. A fenced broker leads nothing and leaves every ISR that has other members.
Checks and error messages are Apache Kafka's.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from odradek_broker.controller.partition_changes import (
    PartitionChanges,
    PartitionUpdate,
    Strategy,
    active_brokers,
    default_dir,
    is_lost,
    without,
)
from odradek_broker.controller.result import ControllerResult
from odradek_broker.controller.voters import forget_removal
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.features import (
    GROUP_VERSION,
    GROUP_VERSION_LEVEL,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    SHARE_VERSION,
    SHARE_VERSION_LEVEL,
    STREAMS_VERSION,
    STREAMS_VERSION_LEVEL,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_LEVEL,
)
from odradek_broker.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from odradek_broker.metadata.records import (
    NO_LEADER,
    RESERVED_DIRECTORIES,
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    SupportedFeature,
    UnregisterBrokerRecord,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)


def bootstrap() -> Sequence[MetadataRecord]:
    """The first records of a new cluster."""
    return [
        FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL),
        FeatureLevelRecord(GROUP_VERSION, GROUP_VERSION_LEVEL),
        FeatureLevelRecord(SHARE_VERSION, SHARE_VERSION_LEVEL),
        FeatureLevelRecord(STREAMS_VERSION, STREAMS_VERSION_LEVEL),
        FeatureLevelRecord(TRANSACTION_VERSION, TRANSACTION_VERSION_LEVEL),
    ]


def check_epoch(image: MetadataImage, broker_id: BrokerId, epoch: int) -> BrokerRegistration:
    """The broker; STALE_BROKER_EPOCH unless `epoch` is the epoch of its registration."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.stale_broker_epoch, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )
    return broker


# -- registration -----------------------------------------------------------------------------


def register(
    image: MetadataImage,
    request: Struct,
    *,
    cluster_id: str,
    next_offset: Offset,
    is_alive: bool,
    unclean_default: bool,
) -> ControllerResult[int]:
    """BrokerRegistration; the response is the broker epoch. Raises KafkaError.

    `is_alive`: the registered incarnation has a session. A new incarnation replaces it
    nevertheless if it holds one of the same directories: a directory is locked by the process
    that uses it, so the old process is dead and its session need not end first. Other brokers
    take over what the old incarnation led.
    """
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    again = existing is not None and existing.incarnation_id == request.incarnation_id
    displaces = existing is not None and is_alive and not again
    if existing and displaces and set(existing.log_dirs).isdisjoint(request.log_dirs):
        raise KafkaError(
            ErrorCode.duplicate_broker_registration,
            "Another broker is registered with that broker id.",
        )
    _check_directories(image, request)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=existing.epoch if existing is not None and again else next_offset,
        end_points=tuple(
            Endpoint(listener.name, listener.host, listener.port, listener.security_protocol)
            for listener in request.listeners
        ),
        features=_checked_features(image, request),
        rack=request.rack,
        fenced=existing.fenced if existing is not None and again else True,
        in_controlled_shutdown=existing is not None and again and existing.in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs),
    )

    def end_the_last_one() -> Sequence[MetadataRecord]:
        if again:
            return []
        return _end_incarnation(
            _after(image, [record]),
            record.broker_id,
            clean=existing is not None and request.previous_broker_epoch == existing.epoch,
            one_disk=max(len(record.log_dirs), len(existing.log_dirs) if existing else 1) == 1,
            unclean_default=unclean_default,
        )

    return ControllerResult([record], record.broker_epoch, end_the_last_one)


def _check_directories(image: MetadataImage, request: Struct) -> None:
    reason = None
    if not request.log_dirs:
        reason = "No directories specified in request"
    elif None in request.log_dirs or not RESERVED_DIRECTORIES.isdisjoint(request.log_dirs):
        reason = "Reserved directory ID in request"
    elif len(set(request.log_dirs)) != len(request.log_dirs):
        reason = "Duplicate directory ID in request"
    for broker in image.brokers.values():
        shared = set(broker.log_dirs) & set(request.log_dirs)
        if shared and broker.id != request.broker_id:
            reason = (
                f"Broker {broker.id} is already registered with directory {min(shared, key=str)}"
            )
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_registration, reason)


def _checked_features(image: MetadataImage, request: Struct) -> tuple[SupportedFeature, ...]:
    """The broker's features; it must support every finalized feature level."""
    supported = {
        feature.name: SupportedFeature(
            feature.name, feature.min_supported_version, feature.max_supported_version
        )
        for feature in request.features
    }
    for name, level in image.features.items():
        feature = supported.get(name, SupportedFeature(name, 0, 0))
        lowest, highest = feature.min_supported_version, feature.max_supported_version
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"Unable to register because the broker does not support finalized version "
                f"{level} of {name}. The broker wants a version between {lowest} and {highest}, "
                "inclusive.",
            )
    return tuple(supported.values())


def _end_incarnation(
    image: MetadataImage,
    broker_id: BrokerId,
    *,
    clean: bool,
    one_disk: bool,
    unclean_default: bool,
) -> list[PartitionChangeRecord]:
    """The old incarnation leads nothing any more, and stays in an ISR only as its last member.

    Not even there if it stopped uncleanly and other replicas are eligible: it may have lost
    committed records, they have not. They replace it, even if none of them is back yet.

    `image` is the one after the old incarnation (with a new registration, or none), so that a
    replica whose directory is gone counts as lost. `one_disk`: the broker had and has at most one
    directory.
    """
    changes = PartitionChanges(image, active_brokers(image), unclean_default)
    found = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if broker_id not in partition.replicas:
                continue
            lost = is_lost(image, partition, broker_id)
            directory = None
            if lost and one_disk and len(partition.replicas) == 1:
                # The only replica, and its disk was replaced: the partition starts empty.
                logger.warning(
                    "%s-%d starts empty: the disk of its only replica was replaced",
                    topic.name,
                    index,
                )
                directory = (broker_id, default_dir(image, broker_id))
            if directory is not None or _is_concerned(partition, broker_id):
                isr = without(partition.isr, {broker_id})
                unclean = lost or not clean
                if unclean and isr == (broker_id,):
                    isr = without(partition.eligible_leader_replicas, {broker_id}) or isr
                change = changes.of(
                    topic,
                    index,
                    PartitionUpdate(isr=isr, directory=directory),
                    unclean_stop=broker_id if unclean else None,
                )
                found += [change] if change else []
    return found


def _is_concerned(partition: PartitionRegistration, broker_id: BrokerId) -> bool:
    return (
        broker_id in partition.isr
        or broker_id in partition.eligible_leader_replicas
        or broker_id in partition.last_known_elr
    )


# -- fence, unfence, stop ---------------------------------------------------------------------


def fence(
    image: MetadataImage, brokers: Collection[BrokerId], *, unclean_default: bool
) -> list[MetadataRecord]:
    """The brokers lead nothing any more and leave every ISR that has other members.

    The brokers' own records come first: if there are more records than one batch takes, leaders
    that know only the first batch would propose to take the brokers back into the ISRs.
    """
    live = active_brokers(image)
    records: list[MetadataRecord] = []
    for broker_id in brokers:
        live.pop(broker_id, None)
        epoch = image.brokers[broker_id].epoch
        records.append(BrokerRegistrationChangeRecord(broker_id, epoch, fenced=1))
    records += _remove(image, brokers, live, unclean_default)
    return records


def unfence(
    image: MetadataImage, broker_id: BrokerId, *, unclean_default: bool
) -> list[MetadataRecord]:
    """The broker serves clients again, and leads partitions that had no leader without it."""
    broker = image.brokers[broker_id]
    live: dict[BrokerId, Collection[UUID]] = active_brokers(image)
    live[broker_id] = broker.log_dirs
    records: list[MetadataRecord] = [
        BrokerRegistrationChangeRecord(broker_id, broker.epoch, fenced=-1)
    ]
    return records + elect_where_leaderless(image, live, unclean_default=unclean_default)


def elect_where_leaderless(
    image: MetadataImage, live: Mapping[BrokerId, Collection[UUID]], *, unclean_default: bool
) -> list[MetadataRecord]:
    changes = PartitionChanges(image, live, unclean_default)
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER:
                change = changes.of(topic, index)
                records += [change] if change else []
    return records


def replace_absent_leaders(image: MetadataImage, *, unclean_default: bool) -> list[MetadataRecord]:
    """Elects leaders for partitions of a fenced or unregistered broker, whose fencing was
    interrupted by a change of the controller."""
    changes = PartitionChanges(image, active_brokers(image), unclean_default)
    present = {broker.id for broker in image.brokers.values() if not broker.fenced}
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if partition.leader != NO_LEADER and partition.leader not in present:
                isr = tuple(r for r in partition.isr if r in present) or partition.isr
                change = changes.of(topic, index, PartitionUpdate(isr=isr))
                records += [change] if change else []
    return records


def start_controlled_shutdown(
    image: MetadataImage, broker_id: BrokerId, *, unclean_default: bool
) -> list[MetadataRecord]:
    """The broker goes on serving while its leadership moves to others."""
    live = active_brokers(image)
    live.pop(broker_id, None)
    epoch = image.brokers[broker_id].epoch
    strategy = Strategy.CONTROLLED_SHUTDOWN
    return [
        BrokerRegistrationChangeRecord(broker_id, epoch, in_controlled_shutdown=1),
        *_remove(image, [broker_id], live, unclean_default, strategy),
    ]


def unregister(
    image: MetadataImage, broker_id: BrokerId, *, unclean_default: bool
) -> ControllerResult[Struct]:
    """UnregisterBroker: removes the registration; the broker may register again."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not currently registered"
        )
    unregistered = UnregisterBrokerRecord(broker_id, broker.epoch)
    # Decided against the image without the broker, so that its replicas count as lost.
    changes = _end_incarnation(
        _after(image, [unregistered]),
        broker_id,
        clean=False,
        one_disk=False,
        unclean_default=unclean_default,
    )
    # A later broker with this id is another one: it may vote even if this one was excluded.
    forgotten = forget_removal(image, broker_id).records
    records: list[MetadataRecord] = [*changes, unregistered, *forgotten]
    return ControllerResult(records, Struct(error_code=ErrorCode.none, error_message=None))


def _remove(
    image: MetadataImage,
    brokers: Collection[BrokerId],
    live: Mapping[BrokerId, Collection[UUID]],
    unclean_default: bool,
    strategy: Strategy = Strategy.OFFLINE,
) -> list[PartitionChangeRecord]:
    """Removes brokers from every ISR and leadership."""
    gone = frozenset(brokers)
    changes = PartitionChanges(image, live, unclean_default, shutting_down=gone)
    found = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if not gone.isdisjoint(partition.isr):
                update = PartitionUpdate(isr=without(partition.isr, gone))
                change = changes.of(topic, index, update, strategy)
                if change is not None:
                    found.append(change)
    return found


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )


def _after(image: MetadataImage, records: Sequence[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.finish(image.offset + len(records)).after
