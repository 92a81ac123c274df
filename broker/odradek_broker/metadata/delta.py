"""From one image to the next: replays records, and keeps track of what they changed.

    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    delta.finish(offset).after          # the new image; `image` is untouched

The active controller, its followers and a restarted node share this path. Subscribers of the
publisher get the finished delta: `changed_partitions()`, `deleted_topics`, …
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

from odradek_broker.metadata.client_quotas import QuotaEntity, entity_of
from odradek_broker.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from odradek_broker.metadata.records import (
    NO_LEADER_CHANGE,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from odradek_broker.metadata.scram import ScramCredential, ScramKey
from odradek_broker.model.acl import Acl
from odradek_protocol.ids import BrokerId, Offset, TopicId

K = TypeVar("K")
V = TypeVar("V")


# Fields of a partition that a change record replaces if it has them.
_CHANGEABLE = (
    "isr",
    "replicas",
    "removing_replicas",
    "adding_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)


class ReplayError(Exception):
    """A record that contradicts the image: another program wrote this log, or it is damaged."""


class PartitionChange(NamedTuple):
    """One partition that is new (`before` is None) or was changed."""

    topic: TopicImage  # as it is now
    partition: int
    before: PartitionRegistration | None
    after: PartitionRegistration


class MetadataDelta:
    """Copies a topic, or a resource's configs, only when it first changes."""

    def __init__(self, before: MetadataImage) -> None:
        self.before = before
        self.after = before  # the new image, once finished
        self.deleted_topics: dict[TopicId, TopicImage] = {}
        self.changed_configs: set[ConfigResource] = set()
        self.changed_brokers: set[BrokerId] = set()
        self._changed_topics: dict[TopicId, _TopicChange] = {}
        self._topic_ids: dict[str, TopicId | None] = {}  # names taken or freed in this delta
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._brokers: dict[BrokerId, BrokerRegistration | None] = {}
        self._features: dict[str, int] = {}
        self._scram: dict[ScramKey, ScramCredential | None] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._tokens: dict[str, DelegationTokenRecord | None] = {}
        self._next_producer_id = before.next_producer_id
        self._acl_ids: dict[Acl, UUID | None] = {}
        self.changed_acls: dict[UUID, Acl | None] = {}  # None: removed

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> Self:
        """The difference of two images, when the records are unknown (a snapshot)."""
        delta = cls(before)
        delta.after = after
        for topic in before.topics.values():
            if topic.id not in after.topics_by_id:
                delta.deleted_topics[topic.id] = topic
        for topic in after.topics.values():
            old = before.topics_by_id.get(topic.id)
            if old is topic:
                continue
            change = _TopicChange(topic.name, dict(topic.partitions))
            for index, partition in topic.partitions.items():
                old_partition = old.partitions.get(index) if old else None
                if partition != old_partition:
                    change.touched[index] = old_partition
            delta._changed_topics[topic.id] = change
        delta.changed_configs = _changed_keys(before.configs, after.configs)
        delta.changed_brokers = _changed_keys(before.brokers, after.brokers)
        for acl_id in _changed_keys(before.acls, after.acls):
            delta.changed_acls[acl_id] = after.acls.get(acl_id)
        return delta

    # -- what changed ---------------------------------------------------------------------

    def changed_partitions(self) -> Iterator[PartitionChange]:
        """Every partition that is new or changed, topic by topic."""
        for topic_id, change in self._changed_topics.items():
            topic = self.after.topics_by_id[topic_id]
            for partition, before in change.touched.items():
                yield PartitionChange(topic, partition, before, topic.partitions[partition])

    def changed_topic_configs(self) -> Iterator[str]:
        """Names of topics whose configuration changed and that still exist."""
        for resource in self.changed_configs:
            if resource.type is ResourceType.TOPIC and resource.name in self.after.topics:
                yield resource.name

    def broker_config_changed(self, broker_id: BrokerId) -> bool:
        """Whether its own configuration or the default of all brokers changed."""
        return any(
            ConfigResource(ResourceType.BROKER, name) in self.changed_configs
            for name in ("", str(broker_id))
        )

    # -- replay -----------------------------------------------------------------------------

    def replay(self, record: MetadataRecord) -> None:
        _REPLAY[type(record)](self, record)

    def rebase(self, before: MetadataImage) -> None:
        """Replaces `before` by an image with the same content."""
        self.before = before

    def finish(self, offset: Offset) -> Self:
        """Builds `after`; `offset` is the offset of the last record."""
        before = self.before
        topics, topics_by_id = before.topics, before.topics_by_id
        if self._topic_ids or self._changed_topics:
            topics, topics_by_id = self._next_topics()
        self.after = MetadataImage(
            offset=offset,
            brokers=_merged(before.brokers, self._brokers),
            topics=topics,
            topics_by_id=topics_by_id,
            configs=_merged(before.configs, {k: v or None for k, v in self._configs.items()}),
            features=_merged(before.features, {k: v or None for k, v in self._features.items()}),
            next_producer_id=self._next_producer_id,
            client_quotas=_merged(
                before.client_quotas, {k: v or None for k, v in self._quotas.items()}
            ),
            scram=before.scram.changed(self._scram),
            acls=_merged(before.acls, self.changed_acls),
            acl_ids=_merged(before.acl_ids, self._acl_ids),
            tokens=_merged(before.tokens, self._tokens),
        )
        return self

    def _next_topics(self) -> tuple[dict[str, TopicImage], dict[TopicId, TopicImage]]:
        topics, topics_by_id = dict(self.before.topics), dict(self.before.topics_by_id)
        for topic in self.deleted_topics.values():
            del topics[topic.name], topics_by_id[topic.id]
        for topic_id, change in self._changed_topics.items():
            topic = TopicImage(change.name, topic_id, change.partitions)
            topics[change.name] = topics_by_id[topic_id] = topic
        return topics, topics_by_id

    def _topic(self, topic_id: TopicId) -> "_TopicChange":
        change = self._changed_topics.get(topic_id)
        if change is None:
            topic = self.before.topics_by_id.get(topic_id)
            if topic is None or topic_id in self.deleted_topics:
                raise ReplayError(f"no topic with id {topic_id}")
            change = _TopicChange(topic.name, dict(topic.partitions))
            self._changed_topics[topic_id] = change
        return change

    def _topic_record(self, record: TopicRecord) -> None:
        existing = self.before.topics.get(record.name)
        taken = self._topic_ids.get(record.name, existing and existing.id)
        if taken is not None:
            raise ReplayError(f"topic {record.name} exists already")
        self._topic_ids[record.name] = record.topic_id
        self._changed_topics[record.topic_id] = _TopicChange(record.name, {})

    def _partition_record(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        before = topic.partitions.get(record.partition_id)
        topic.touched.setdefault(record.partition_id, before)
        topic.partitions[record.partition_id] = PartitionRegistration(
            record.replicas,
            record.isr,
            record.removing_replicas,
            record.adding_replicas,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.directories,
            record.leader_recovery_state,
            record.eligible_leader_replicas,
            record.last_known_elr,
        )

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        before = topic.partitions.get(record.partition_id)
        if before is None:
            raise ReplayError(f"no partition {topic.name}-{record.partition_id}")
        changes: dict[str, Any] = {
            name: getattr(record, name) for name in _CHANGEABLE if getattr(record, name) is not None
        }
        if record.leader != NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = before.leader_epoch + 1
        if record.leader_recovery_state >= 0:
            changes["leader_recovery_state"] = record.leader_recovery_state
        topic.touched.setdefault(record.partition_id, before)
        topic.partitions[record.partition_id] = replace(
            before, partition_epoch=before.partition_epoch + 1, **changes
        )

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._topic(record.topic_id).name
        del self._changed_topics[record.topic_id]
        self._topic_ids[name] = None
        existing = self.before.topics_by_id.get(record.topic_id)
        if existing is not None:
            self.deleted_topics[record.topic_id] = existing
        resource = ConfigResource(ResourceType.TOPIC, name)
        if self._config(resource):
            self.changed_configs.add(resource)
            self._configs[resource] = {}

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        if resource not in self._configs:
            self._configs[resource] = dict(self.before.configs.get(resource, {}))
        return self._configs[resource]

    def _config_record(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        self.changed_configs.add(resource)
        if record.value is None:
            self._config(resource).pop(record.name, None)
        else:
            self._config(resource)[record.name] = record.value

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.changed_brokers.add(record.broker_id)
        self._brokers[record.broker_id] = BrokerRegistration(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            {endpoint.name: endpoint for endpoint in record.end_points},
            record.features,
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.log_dirs,
        )

    def _broker(self, broker_id: BrokerId, epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(broker_id, self.before.brokers.get(broker_id))
        if broker is None or broker.epoch != epoch:
            raise ReplayError(f"no broker {broker_id} with epoch {epoch}")
        return broker

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self.changed_brokers.add(record.broker_id)
        self._brokers[record.broker_id] = None

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        shutting_down = broker.in_controlled_shutdown
        self.changed_brokers.add(record.broker_id)
        self._brokers[record.broker_id] = replace(
            broker,
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown > 0
            if record.in_controlled_shutdown
            else shutting_down,
            log_dirs=record.log_dirs or broker.log_dirs,
        )

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        self._features[record.name] = record.feature_level

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise ReplayError(
                f"producer ids from {record.next_producer_id} on were allocated before"
            )
        self._next_producer_id = record.next_producer_id

    def _scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._scram[ScramKey(record.mechanism, record.name)] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        key = ScramKey(record.mechanism, record.name)
        if self._scram.get(key, self.before.scram.credentials.get(key)) is None:
            raise ReplayError(f"user {record.name} has no {record.mechanism.label} credential")
        self._scram[key] = None

    def _access_control_entry(self, record: AccessControlEntryRecord) -> None:
        acl = record.acl
        if self._acl(record.id) is not None or self._acl_id(acl) is not None:
            raise ReplayError(f"ACL {record.id} exists already: {acl}")
        self.changed_acls[record.id] = acl
        self._acl_ids[acl] = record.id

    def _remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        acl = self._acl(record.id)
        if acl is None:
            raise ReplayError(f"no ACL with id {record.id}")
        self.changed_acls[record.id] = None
        self._acl_ids[acl] = None

    def _acl(self, acl_id: UUID) -> Acl | None:
        if acl_id in self.changed_acls:
            return self.changed_acls[acl_id]
        return self.before.acls.get(acl_id)

    def _acl_id(self, acl: Acl) -> UUID | None:
        return self._acl_ids[acl] if acl in self._acl_ids else self.before.acl_ids.get(acl)

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        entity = entity_of({part.entity_type: part.entity_name for part in record.entity})
        if entity not in self._quotas:
            self._quotas[entity] = dict(self.before.client_quotas.get(entity, {}))
        if record.remove:
            self._quotas[entity].pop(record.key, None)
        else:
            self._quotas[entity][record.key] = record.value

    def _delegation_token(self, record: DelegationTokenRecord) -> None:
        self._tokens[record.token_id] = record

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        token_id = record.token_id
        if self._tokens.get(token_id, self.before.tokens.get(token_id)) is None:
            raise ReplayError(f"no delegation token with id {token_id}")
        self._tokens[token_id] = None

    def _no_op(self, record: NoOpRecord) -> None:
        pass


class _TopicChange:
    """A topic that is being changed: its partitions so far, and the old state of changed ones."""

    __slots__ = ("name", "partitions", "touched")

    def __init__(self, name: str, partitions: dict[int, PartitionRegistration]) -> None:
        self.name = name
        self.partitions = partitions
        self.touched: dict[int, PartitionRegistration | None] = {}


def _changed_keys(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def _merged(before: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    """`before` with `changes` applied; None removes. The same object if nothing changed."""
    if not changes:
        return before
    merged = dict(before)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


_REPLAY: dict[type, Callable[[MetadataDelta, Any], None]] = {
    RegisterBrokerRecord: MetadataDelta._register_broker,
    UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    BrokerRegistrationChangeRecord: MetadataDelta._broker_change,
    TopicRecord: MetadataDelta._topic_record,
    PartitionRecord: MetadataDelta._partition_record,
    PartitionChangeRecord: MetadataDelta._partition_change,
    RemoveTopicRecord: MetadataDelta._remove_topic,
    ConfigRecord: MetadataDelta._config_record,
    FeatureLevelRecord: MetadataDelta._feature_level,
    ProducerIdsRecord: MetadataDelta._producer_ids,
    AccessControlEntryRecord: MetadataDelta._access_control_entry,
    RemoveAccessControlEntryRecord: MetadataDelta._remove_access_control_entry,
    NoOpRecord: MetadataDelta._no_op,
    UserScramCredentialRecord: MetadataDelta._scram_credential,
    RemoveUserScramCredentialRecord: MetadataDelta._remove_scram_credential,
    ClientQuotaRecord: MetadataDelta._client_quota,
    DelegationTokenRecord: MetadataDelta._delegation_token,
    RemoveDelegationTokenRecord: MetadataDelta._remove_delegation_token,
}
