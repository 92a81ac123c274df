"""An image as records: the content of a snapshot of the metadata log.

Replaying them into an empty image gives an equal one. Features come first, because the meaning of
the other records depends on them.
"""

from collections.abc import Iterator
from dataclasses import fields

from odradek_broker.metadata.client_quotas import QuotaEntity
from odradek_broker.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from odradek_broker.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from odradek_protocol.ids import BrokerId

# By name: a missing field is a TypeError.
_PARTITION_FIELDS = tuple(field.name for field in fields(PartitionRegistration))
_NOBODY = BrokerId(-1)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    for name, level in image.features.items():
        yield FeatureLevelRecord(name, level)
    for broker in image.brokers.values():
        yield _broker(broker)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.id)
        yield from _partitions(topic)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource.type, resource.name, name, value)
    for (mechanism, user), credential in image.scram.credentials.items():
        yield UserScramCredentialRecord(
            user,
            mechanism,
            credential.salt,
            credential.stored_key,
            credential.server_key,
            credential.iterations,
        )
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(acl_id, *acl)
    for entity, quotas in image.client_quotas.items():
        for key, limit in quotas.items():
            yield quota_record(entity, key, limit)
    yield from image.tokens.values()
    if image.next_producer_id:
        # The broker that got the last block does not matter any more.
        yield ProducerIdsRecord(_NOBODY, -1, image.next_producer_id)


def quota_record(entity: QuotaEntity, key: str, limit: float | None) -> ClientQuotaRecord:
    """Sets the quota, or removes it if the limit is None."""
    parts = tuple(QuotaEntityData(kind, name) for kind, name in entity)
    return ClientQuotaRecord(parts, key, 0.0 if limit is None else limit, limit is None)


def _broker(broker: BrokerRegistration) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=tuple(broker.endpoints.values()),
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def _partitions(topic: TopicImage) -> Iterator[PartitionRecord]:
    for index, partition in topic.partitions.items():
        known = {name: getattr(partition, name) for name in _PARTITION_FIELDS}
        yield PartitionRecord(partition_id=index, topic_id=topic.id, **known)
