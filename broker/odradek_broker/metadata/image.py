"""The cluster's metadata at one offset of the metadata log. Immutable.

Every broker holds one, answers requests from it, and replaces it by the next one, which
`metadata/delta.py` makes from it and new records. Parts that did not change are shared between
images, so keeping an old image is cheap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek_broker.metadata.client_quotas import Quotas
from odradek_broker.metadata.records import (
    UNASSIGNED_DIRECTORY,
    DelegationTokenRecord,
    Endpoint,
    ResourceType,
    SupportedFeature,
)
from odradek_broker.metadata.scram import NO_CREDENTIALS, ScramImage
from odradek_broker.model.acl import Acl
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset, ProducerId, TopicId


class ConfigResource(NamedTuple):
    """`ConfigResource(ResourceType.BROKER, "")` is the default of all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: BrokerId
    epoch: int
    incarnation_id: UUID
    endpoints: Mapping[str, Endpoint]  # by listener name
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]

    @property
    def active(self) -> bool:
        """May lead, join an ISR and get new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_dir(self, directory: UUID) -> bool:
        """Whether a replica in `directory` is online; also if its directory is not assigned yet."""
        return directory in self.log_dirs or directory == UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """Invariants: leader is -1 or in isr; isr ⊆ replicas; one directory per replica.

    Replicas that left an ISR below min.insync.replicas (KIP-966) have every committed record,
    because nothing was committed without them. `eligible_leader_replicas` have lost nothing
    since; `last_known_elr` stopped uncleanly, and may have lost their newest records. ISR and
    both sets are disjoint.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    directories: tuple[UUID, ...]
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TopicImage:
    """A topic and its partitions, 0 … n-1. Compared by identity: unchanged topics are shared."""

    name: str
    id: TopicId
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True, eq=False)
class MetadataImage:
    """`offset` is that of the last record in the image; -1 for the empty image."""

    offset: Offset = -1
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: ProducerId = 0
    scram: ScramImage = NO_CREDENTIALS
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    acl_ids: Mapping[Acl, UUID] = field(default_factory=dict)  # the same, the other way round
    client_quotas: Quotas = field(default_factory=dict)
    tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)  # by id

    def config(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """The configuration of one topic, broker, …; empty if nothing is set."""
        return self.configs.get(ConfigResource(resource_type, name), {})

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.config(ResourceType.TOPIC, name)

    def usable_brokers(self) -> list[BrokerRegistration]:
        """Brokers on which new replicas may be placed."""
        return [broker for broker in self.brokers.values() if broker.active]

    def validate(self) -> None:
        """Assert every invariant; for tests, after each step."""
        assert {t.id: t for t in self.topics.values()} == self.topics_by_id
        for topic in self.topics.values():
            assert sorted(topic.partitions) == list(range(len(topic.partitions))), topic.name
            for partition in topic.partitions.values():
                assert partition.leader == -1 or partition.leader in partition.isr
                assert set(partition.isr) <= set(partition.replicas)
                assert len(set(partition.replicas)) == len(partition.replicas)
                assert len(partition.directories) == len(partition.replicas)
                assert partition.isr
                elr, last = partition.eligible_leader_replicas, partition.last_known_elr
                held = (*partition.isr, *elr, *last)
                assert len(set(held)) == len(held)
                assert set(held) <= set(partition.replicas)
        assert {acl: acl_id for acl_id, acl in self.acls.items()} == self.acl_ids
        assert all(self.configs.values()), "a resource without configs is kept"
        assert all(self.client_quotas.values()), "an entity without quotas is kept"
        for token_id, token in self.tokens.items():
            assert token.token_id == token_id
            assert token.expiration_timestamp <= token.max_timestamp, token


EMPTY_IMAGE = MetadataImage()
