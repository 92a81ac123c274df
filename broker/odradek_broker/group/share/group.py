"""A share group: members, target assignment, partitions with state. Only `replay` changes it.

Empty ──a member joins──► Stable ──the last member leaves──► Empty
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group.member_records import MemberRecord, tombstone
from odradek_broker.group.members import GroupOfMembers
from odradek_broker.group.records import Key, OffsetAndMetadata
from odradek_broker.group.share import records as rec
from odradek_broker.group.turn import Turn
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

EMPTY, STABLE = "Empty", "Stable"
STABLE_MEMBER = 0
SESSION_TIMER = "share-session"
NO_PARTITIONS: rec.Assignment = MappingProxyType({})
NO_STATE = rec.StatePartitions(MappingProxyType({}), MappingProxyType({}))
# The epoch of a group with its first member, as in Kafka, is one more than this.
FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0  # accepted too: the response with the new one may be lost
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: rec.Assignment = field(default_factory=lambda: NO_PARTITIONS)

    def metadata_record(self, group_id: str) -> MemberRecord:
        value = Struct(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
        )
        return MemberRecord(rec.MEMBER, group_id, self.member_id, value)

    def current_record(self, group_id: str) -> MemberRecord:
        value = Struct(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=STABLE_MEMBER,
            assigned_partitions=rec.structs_of(self.assigned),
        )
        return MemberRecord(rec.CURRENT_MEMBER, group_id, self.member_id, value)


class ShareGroup(GroupOfMembers[ShareMember]):
    type_name = "Share"
    protocol_type = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.target: dict[str, rec.Assignment] = {}
        self.state: rec.StatePartitions = NO_STATE
        # Not in records: when state was last being initialized here.
        self.initializing_since_ms = float("-inf")

    def copy(self) -> "ShareGroup":
        other = ShareGroup(self.group_id)
        other.__dict__.update(self.__dict__)
        other.members, other.target = dict(self.members), dict(self.target)
        return other

    # --- the Group protocol ------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    def validate_offset_commit(
        self,
        turn: Turn,  # noqa: ARG002
        member_id: str,  # noqa: ARG002
        group_instance_id: str | None,  # noqa: ARG002
        generation: int,  # noqa: ARG002
        *,
        transactional: bool,  # noqa: ARG002
    ) -> Callable[[MetadataImage, Key], ErrorCode] | None:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {self.group_id} is a share group.")

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {self.group_id} is a share group.")

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribed_topics()

    def offset_expires_at_ms(self, key: Key, value: OffsetAndMetadata, retention_ms: int) -> float:  # noqa: ARG002
        return float("inf")

    def tombstones(self) -> list[CoordinatorRecord]:
        """In this order, so that a replayed member is always complete."""
        gone = [tombstone(rec.CURRENT_MEMBER, self.group_id, m) for m in self.members]
        gone += [tombstone(rec.TARGET_MEMBER, self.group_id, m) for m in self.target]
        gone.append(tombstone(rec.TARGET_EPOCH, self.group_id))
        gone += [tombstone(rec.MEMBER, self.group_id, m) for m in self.members]
        gone.append(tombstone(rec.STATE, self.group_id))
        gone.append(tombstone(rec.GROUP_EPOCH, self.group_id))
        return [rec.encode(record) for record in gone]

    def loaded(self, turn: Turn, own: Mapping[str, str]) -> None:
        """Every member gets a new session."""
        session_ms = turn.config.share.of_group(own).session_timeout_ms
        for member_id in self.members:
            turn.set_timer((SESSION_TIMER, self.group_id, member_id), session_ms)

    # --- queries ----------------------------------------------------------------------------------

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(member.topics for member in self.members.values()))

    def hash_of_topics(self, image: MetadataImage) -> int:
        """Changes when a subscribed topic is created, deleted, recreated or gets partitions."""
        digest = blake2b(digest_size=8)
        known = False
        for name in sorted(self.subscribed_topics()):
            topic = image.topics.get(name)
            if topic is not None:
                known = True
                digest.update(f"{name} {topic.id} {len(topic.partitions)};".encode())
        return int.from_bytes(digest.digest(), "big", signed=True) if known else 0

    def assignable(self, image: MetadataImage) -> dict[str, tuple[TopicId, frozenset[int]]]:
        """By name: the partitions of existing topics whose state is initialized."""
        return {
            topic.name: (topic_id, topic.partitions)
            for topic_id, topic in self.state.initialized.items()
            if topic_id in image.topics_by_id
        }

    def uninitialized(self, image: MetadataImage) -> dict[TopicId, rec.TopicState]:
        """Partitions of subscribed topics that have no state yet."""
        missing: dict[TopicId, rec.TopicState] = {}
        for name in self.subscribed_topics():
            topic = image.topics.get(name)
            if topic is None:
                continue
            known = self.state.initialized.get(topic.id)
            partitions = frozenset(topic.partitions) - (known.partitions if known else frozenset())
            if partitions:
                missing[topic.id] = rec.TopicState(name, partitions)
        return missing

    # --- replay -----------------------------------------------------------------------------------

    def replay(self, record: MemberRecord) -> None:
        """Compaction may have removed earlier records, so any record may come first."""
        name, value = record.member_id, record.value
        match record.kind:
            case rec.GROUP_EPOCH if value is not None:
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case rec.TARGET_EPOCH:
                self.target_epoch = value.assignment_epoch if value else -1
                self.target_timestamp_ms = value.assignment_timestamp if value else 0
            case rec.TARGET_MEMBER:
                if value is None:
                    self.target.pop(name, None)
                else:
                    self.target[name] = rec.assignment_of(value.topic_partitions)
            case rec.MEMBER:
                if value is None:
                    self.members.pop(name, None)
                else:
                    self.members[name] = replace(
                        self._known(name),
                        rack_id=value.rack_id,
                        client_id=value.client_id,
                        client_host=value.client_host,
                        topics=frozenset(value.subscribed_topic_names),
                    )
            case rec.CURRENT_MEMBER if value is not None:
                self.members[name] = replace(
                    self._known(name),
                    member_epoch=value.member_epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    assigned=rec.assignment_of(value.assigned_partitions),
                )
            case rec.STATE:
                self.state = rec.state_of(value) if value is not None else NO_STATE

    def _known(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id)
