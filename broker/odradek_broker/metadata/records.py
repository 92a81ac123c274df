"""The records of the metadata log, under Apache Kafka's names and with its fields.

The decisions of the controller are made of these; `metadata/delta.py` replays them. Their encoding
is in `record_codec.py`.
"""

from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from odradek_broker.metadata.scram import ScramMechanism
from odradek_broker.model.acl import Acl
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.admin_codes import ResourceType as ResourceType  # of ConfigRecord
from odradek_protocol.ids import BrokerId, LeaderEpoch, ProducerId, TopicId

NO_LEADER = BrokerId(-1)
NO_LEADER_CHANGE = BrokerId(-2)

# Directory ids that name no directory (Kafka's DirectoryId).
UNASSIGNED_DIRECTORY = UUID(int=0)
RESERVED_DIRECTORIES = frozenset(UUID(int=i) for i in range(100))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An advertised listener. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2/3 SASL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    broker_id: BrokerId
    incarnation_id: UUID  # new with each start of the process
    broker_epoch: int  # the offset of this record: increases with each registration
    end_points: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    is_migrating_zk_broker: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """`fenced`, `in_controlled_shutdown`: 1 sets, -1 clears, 0 leaves unchanged."""

    broker_id: BrokerId
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRecord:
    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A new partition, or (in a snapshot) an existing one."""

    partition_id: int
    topic_id: TopicId
    replicas: tuple[BrokerId, ...]  # in order of preference as leader
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    directories: tuple[UUID, ...]  # of each replica, in their order
    leader_recovery_state: int = 0  # 1 after an unclean election
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """Changes of a partition; None (for the leader: -2) means unchanged.

    Every record raises the partition epoch; one with a leader raises the leader epoch too.
    """

    partition_id: int
    topic_id: TopicId
    isr: tuple[BrokerId, ...] | None = None
    leader: BrokerId = NO_LEADER_CHANGE
    replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    leader_recovery_state: int = -1
    directories: tuple[UUID, ...] | None = None
    eligible_leader_replicas: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    resource_type: ResourceType
    resource_name: str  # "" for the default of all brokers
    name: str
    value: str | None  # None: reset to the default


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    name: str
    feature_level: int  # 0: the feature is off


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Allocates the ids from the previous record's next_producer_id up to this one to a broker."""

    broker_id: BrokerId
    broker_epoch: int
    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    id: UUID
    resource_type: AclResource
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermission

    @property
    def acl(self) -> Acl:
        return Acl(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    id: UUID


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    pass


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """A user's credential for one SCRAM mechanism, new or changed."""

    name: str
    mechanism: ScramMechanism
    # Enough to test guesses of the password: not in repr(), so in no log line and traceback.
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    """A delegation token (KIP-48), new or with another expiry. Its HMAC is not stored: brokers
    compute it from the id with `delegation.token.secret.key`. Principals are text: `User:alice`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int  # these three: ms since 1970
    max_timestamp: int  # no renewal beyond this time
    expiration_timestamp: int
    token_id: str

    def concerns(self, principal: str) -> bool:
        """The owner, the requester and the renewers see the token without further rights."""
        return principal in (self.owner, self.requester, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        return self.expiration_timestamp < now_ms or self.max_timestamp < now_ms


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    token_id: str


@dataclass(frozen=True, slots=True)
class QuotaEntityData:
    entity_type: str
    entity_name: str | None  # None: the default of the type


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """Sets one quota of an entity, or removes it."""

    entity: tuple[QuotaEntityData, ...]
    key: str
    value: float
    remove: bool


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)
