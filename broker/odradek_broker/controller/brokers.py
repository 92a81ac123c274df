"""Decisions about brokers: a single one registers itself at start.

Fencing, heartbeats and elections come with the quorum; until then a broker that is here is
live, and leads what it has.
"""

from collections.abc import Sequence
from uuid import UUID

from odradek_broker.controller.result import Result
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import (
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    SupportedFeature,
)
from odradek_broker.model.ids import BrokerId, Offset
from odradek_broker.runtime.listeners import SECURITY_PROTOCOLS, Listener

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30  # 4.3-IV0, the release whose records and answers we follow
METADATA_VERSION_MIN = 7  # 3.3-IV3, the lowest that Kafka 4 knows


def bootstrap() -> Sequence[MetadataRecord]:
    """The first records of a new cluster."""
    return [FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL)]


def register_broker(
    image: MetadataImage,
    broker_id: BrokerId,
    *,
    incarnation_id: UUID,
    next_offset: Offset,
    listeners: Sequence[Listener],
    rack: str | None,
    log_dirs: Sequence[UUID],
    clean_shutdown: bool,
) -> Result[int]:
    """Registers a broker that starts; the response is its broker epoch.

    After an unclean shutdown the tail of a log may be gone. Every partition that the broker
    leads gets a new leader epoch then, so that clients notice (KIP-320) instead of reading
    other records under the same epoch.
    """
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=incarnation_id,
            broker_epoch=next_offset,
            end_points=tuple(
                Endpoint(
                    listener.name,
                    listener.host,
                    listener.port,
                    SECURITY_PROTOCOLS.index(listener.security_protocol),
                )
                for listener in listeners
            ),
            features=(
                SupportedFeature(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
            ),
            rack=rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=tuple(log_dirs),
        )
    ]
    if not clean_shutdown:
        records += [
            PartitionChangeRecord(partition, topic.id, leader=broker_id)
            for topic in image.topics.values()
            for partition, registration in topic.partitions.items()
            if registration.leader == broker_id
        ]
    return Result(records, next_offset)
