"""Kafka's records of consumer groups in `__consumer_offsets`, as objects and as bytes.

A key is an int16, the type of the record, and the key's fields in the protocol's old encoding. A
value is an int16, the version of its layout, and the fields in the flexible encoding. A tombstone
has no value. Example: the epoch 7 of group "g" is key `0003 0001 67`, value `0000 00000007 00`.

Trap: a member of the consumer protocol has *no* classic metadata, and that is written (tag 0,
length 1, null): a value without the tag means empty classic metadata.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from odradek_broker.group.consumer.member import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMember,
    OwnedPartitions,
    Partitions,
)
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import TopicId
from odradek_protocol.records.record_layout import (
    INT8,
    INT32,
    INT32S,
    INT64,
    STRING,
    UUID_,
    Codec,
    Field,
    array,
    layout,
    nested,
    read_layout,
    write_layout,
)
from odradek_protocol.varint import read_uvarint, write_uvarint

EMPTY_CLASSIC_METADATA = ClassicMemberMetadata()


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    topic_id: TopicId
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """ConsumerGroupMetadata (3). `metadata_hash` covers the subscribed topics."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """ConsumerGroupMemberMetadata (5): identity and subscription of a member."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = EMPTY_CLASSIC_METADATA


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """ConsumerGroupTargetAssignmentMetadata (6)."""

    assignment_epoch: int
    assignment_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class TargetMember:
    """ConsumerGroupTargetAssignmentMember (7): the target of a member."""

    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class CurrentMember:
    """ConsumerGroupCurrentMemberAssignment (8): the partitions of a member."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...]
    partitions_pending_revocation: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """ConsumerGroupRegularExpression (16): the topics that matched, at a metadata offset."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


Value: TypeAlias = (
    GroupEpoch | MemberMetadata | TargetEpoch | TargetMember | CurrentMember | ResolvedRegex
)


class RecordType(NamedTuple):
    key: int
    has_name: bool  # the key names a member or an expression besides the group


GROUP_EPOCH, MEMBER, TARGET_EPOCH = RecordType(3, False), RecordType(5, True), RecordType(6, False)
TARGET_MEMBER, CURRENT_MEMBER = RecordType(7, True), RecordType(8, True)
REGEX = RecordType(16, True)
# Up to 4.0 Kafka wrote the partition counts of subscribed topics; a hash replaced them.
PARTITION_METADATA = RecordType(4, False)


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """`name` is the member id or the expression, "" where the key has none. No value: tombstone."""

    type: RecordType
    group_id: str
    name: str
    value: Value | None


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_uvarint(data, at)
    end = at + length - 1
    if length == 0 or end > len(data):
        raise DecodeError("record: a length exceeds the record")
    return data[at:end], end


def _write_bytes(out: bytearray, value: bytes) -> None:
    write_uvarint(out, len(value) + 1)
    out += value


def _nullable(codec: Codec) -> Codec:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        present, at = read_uvarint(data, at)
        return codec.read(data, at) if present else (None, at)

    def write(out: bytearray, value: Any) -> None:
        out.append(value is not None)
        if value is not None:
            codec.write(out, value)

    return Codec(read, write)


def _protocol() -> Codec:
    """A NamedTuple is not a dataclass, so it is read field by field."""

    def read(data: bytes, at: int) -> tuple[ClassicProtocol, int]:
        name, at = STRING.read(data, at)
        metadata, at = _read_bytes(data, at)
        _, at = read_uvarint(data, at)
        return ClassicProtocol(name, metadata), at

    def write(out: bytearray, value: ClassicProtocol) -> None:
        STRING.write(out, value.name)
        _write_bytes(out, value.metadata)
        out.append(0)

    return Codec(read, write)


STRINGS = array(STRING)
TOPIC_PARTITIONS = array(
    nested(
        layout(
            TopicPartitions,
            Field("topic_id", UUID_),
            Field("partitions", INT32S),
            Field("assignment_epochs", INT32S, tag=0),
        )
    )
)
CLASSIC_MEMBER = layout(
    ClassicMemberMetadata,
    Field("session_timeout_ms", INT32),
    Field("supported_protocols", array(_protocol())),
)

TYPES = {
    type_.key: type_
    for type_ in (
        GROUP_EPOCH,
        PARTITION_METADATA,
        MEMBER,
        TARGET_EPOCH,
        TARGET_MEMBER,
        CURRENT_MEMBER,
        REGEX,
    )
}
VALUES = {
    GROUP_EPOCH.key: layout(
        GroupEpoch, Field("epoch", INT32), Field("metadata_hash", INT64, tag=0)
    ),
    MEMBER.key: layout(
        MemberMetadata,
        Field("instance_id", STRING),
        Field("rack_id", STRING),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("subscribed_topic_names", STRINGS),
        Field("subscribed_topic_regex", STRING),
        Field("rebalance_timeout_ms", INT32),
        Field("server_assignor", STRING),
        Field("classic_member_metadata", _nullable(nested(CLASSIC_MEMBER)), tag=0),
    ),
    TARGET_EPOCH.key: layout(
        TargetEpoch,
        Field("assignment_epoch", INT32),
        Field("assignment_timestamp", INT64, tag=0),
    ),
    TARGET_MEMBER.key: layout(TargetMember, Field("topic_partitions", TOPIC_PARTITIONS)),
    CURRENT_MEMBER.key: layout(
        CurrentMember,
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("state", INT8),
        Field("assigned_partitions", TOPIC_PARTITIONS),
        Field("partitions_pending_revocation", TOPIC_PARTITIONS),
    ),
    REGEX.key: layout(
        ResolvedRegex,
        Field("topics", STRINGS),
        Field("version", INT64),
        Field("timestamp", INT64),
    ),
}
VALUE_VERSION = 0


def encode(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as in the log."""
    key = bytearray(struct.pack(">h", record.type.key))
    for text in (record.group_id, record.name) if record.type.has_name else (record.group_id,):
        encoded = text.encode()
        key += struct.pack(">h", len(encoded)) + encoded
    if record.value is None:
        return bytes(key), None
    value = bytearray(struct.pack(">h", VALUE_VERSION))
    write_layout(VALUES[record.type.key], value, record.value)
    return bytes(key), bytes(value)


def decode(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """Raises DecodeError; `key` must begin with one of TYPES. Unread values stay None."""
    try:
        (number,) = struct.unpack_from(">h", key)
        type_ = TYPES[number]
        at, texts = 2, ["", ""]
        for i in range(2 if type_.has_name else 1):
            (length,) = struct.unpack_from(">h", key, at)
            texts[i] = key[at + 2 : at + 2 + length].decode()
            at += 2 + length
        parsed: Value | None = None
        if value is not None and number in VALUES:
            (version,) = struct.unpack_from(">h", value)
            if version != VALUE_VERSION:
                raise DecodeError(f"consumer group record {number}: unknown version {version}")
            parsed, _ = read_layout(VALUES[number], value, 2)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise DecodeError(f"consumer group record cut short or malformed: {error}") from None
    return ConsumerGroupRecord(type_, texts[0], texts[1], parsed)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(GROUP_EPOCH, group_id, "", GroupEpoch(epoch, metadata_hash))


def member_metadata(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    value = MemberMetadata(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return ConsumerGroupRecord(MEMBER, group_id, member.member_id, value)


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(TARGET_EPOCH, group_id, "", TargetEpoch(epoch, timestamp_ms))


def target_member(group_id: str, member_id: str, target: Partitions) -> ConsumerGroupRecord:
    value = TargetMember(
        tuple(TopicPartitions(t, tuple(sorted(p))) for t, p in sorted(target.items()))
    )
    return ConsumerGroupRecord(TARGET_MEMBER, group_id, member_id, value)


def current_member(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    value = CurrentMember(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    return ConsumerGroupRecord(CURRENT_MEMBER, group_id, member.member_id, value)


def regex(group_id: str, expression: str, resolved: ResolvedRegex) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(REGEX, group_id, expression, resolved)


def tombstone(type_: RecordType, group_id: str, name: str = "") -> ConsumerGroupRecord:
    return ConsumerGroupRecord(type_, group_id, name, None)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    return [tombstone(t, group_id, member_id) for t in (CURRENT_MEMBER, TARGET_MEMBER, MEMBER)]


def _with_epochs(owned: OwnedPartitions) -> tuple[TopicPartitions, ...]:
    topics = []
    for topic_id, partitions in sorted(owned.items()):
        numbers = tuple(sorted(partitions))
        topics.append(TopicPartitions(topic_id, numbers, tuple(partitions[p] for p in numbers)))
    return tuple(topics)


def owned_partitions(topics: tuple[TopicPartitions, ...], member_epoch: int) -> OwnedPartitions:
    """From a record; one of an older Kafka has no epochs: the member's epoch is used."""
    owned: dict[TopicId, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if len(epochs) != len(topic.partitions):
            epochs = (member_epoch,) * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
