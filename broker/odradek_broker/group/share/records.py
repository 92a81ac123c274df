"""Kafka's records of share groups in `__consumer_offsets`: types 10 to 15.

10 member    rack, client, subscription           13 target of a member
11 group     epoch, hash of the subscribed topics 14 assignment that a member has
12 target    epoch and time of the assignment     15 partitions with state: initializing,
                                                     initialized, and topics being deleted
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from odradek_broker.coordinator.record_schema import F
from odradek_broker.group.member_records import MemberRecord, RecordCodec
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

MEMBER, GROUP_EPOCH, TARGET_EPOCH, TARGET_MEMBER, CURRENT_MEMBER, STATE = range(10, 16)
OF_MEMBER = frozenset((MEMBER, TARGET_MEMBER, CURRENT_MEMBER))

Assignment = Mapping[TopicId, frozenset[int]]


class TopicState(NamedTuple):
    """Partitions of a topic that have, or are getting, state in the share coordinator."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """Record 15: which partitions have state in the share coordinator, or are getting it."""

    initializing: Mapping[TopicId, TopicState]
    initialized: Mapping[TopicId, TopicState]


_NAMES = {
    MEMBER: "ShareGroupMemberMetadata",
    GROUP_EPOCH: "ShareGroupMetadata",
    TARGET_EPOCH: "ShareGroupTargetAssignmentMetadata",
    TARGET_MEMBER: "ShareGroupTargetAssignmentMember",
    CURRENT_MEMBER: "ShareGroupCurrentMemberAssignment",
    STATE: "ShareGroupStatePartitionMetadata",
}
_PARTITIONS = (F("topic_id", "uuid"), F("partitions", "int32", is_array=True))
_INFO = (F("topic_id", "uuid"), F("topic_name", "string"))
_FIELDS: Mapping[int, tuple[F, ...]] = {
    MEMBER: (
        F("rack_id", "string", nullable=True),
        F("client_id", "string"),
        F("client_host", "string"),
        F("subscribed_topic_names", "string", is_array=True),
    ),
    GROUP_EPOCH: (F("epoch", "int32"), F("metadata_hash", "int64")),
    TARGET_EPOCH: (F("assignment_epoch", "int32"), F("assignment_timestamp", "int64", tag=0)),
    TARGET_MEMBER: (F("topic_partitions", "TopicPartition", items=_PARTITIONS),),
    CURRENT_MEMBER: (
        F("member_epoch", "int32"),
        F("previous_member_epoch", "int32"),
        F("state", "int8"),
        F("assigned_partitions", "TopicPartitions", items=_PARTITIONS),
    ),
    STATE: (
        F("initializing_topics", "Initializing", items=(*_INFO, _PARTITIONS[1])),
        F("initialized_topics", "Initialized", items=(*_INFO, _PARTITIONS[1])),
        F("deleting_topics", "Deleting", items=_INFO),
    ),
}
_CODEC = RecordCodec(_NAMES, _FIELDS, OF_MEMBER)
KEYS = _CODEC.keys
encode, decode = _CODEC.encode, _CODEC.decode


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> MemberRecord:
    value = Struct(epoch=epoch, metadata_hash=metadata_hash)
    return MemberRecord(GROUP_EPOCH, group_id, "", value)


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> MemberRecord:
    value = Struct(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return MemberRecord(TARGET_EPOCH, group_id, "", value)


def target_member(group_id: str, member_id: str, target: Assignment) -> MemberRecord:
    value = Struct(topic_partitions=structs_of(target))
    return MemberRecord(TARGET_MEMBER, group_id, member_id, value)


def state(group_id: str, state: StatePartitions) -> MemberRecord:
    value = Struct(
        initializing_topics=_topic_structs(state.initializing),
        initialized_topics=_topic_structs(state.initialized),
        deleting_topics=[],
    )
    return MemberRecord(STATE, group_id, "", value)


def state_of(value: Any) -> StatePartitions:
    return StatePartitions(_topics(value.initializing_topics), _topics(value.initialized_topics))


def structs_of(assignment: Assignment) -> list[Struct]:
    return [
        Struct(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(assignment.items())
    ]


def assignment_of(topics: Iterable[Any]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _topic_structs(topics: Mapping[TopicId, TopicState]) -> list[Struct]:
    return [
        Struct(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in sorted(topics.items())
    ]


def _topics(read: Iterable[Any]) -> dict[TopicId, TopicState]:
    return {t.topic_id: TopicState(t.topic_name, frozenset(t.partitions)) for t in read}
