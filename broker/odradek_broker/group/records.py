"""Records of `__consumer_offsets` in Apache Kafka's encoding, so that its tools read them.

A key begins with its type: 0 and 1 an offset, 2 a classic group; 3 and up are KIP-848's. Values
are written in version 3, the newest that is not flexible, like Kafka; all versions can be read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek_broker.coordinator.record_schema import F, RecordSchema
from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_protocol.messages.struct import Struct

LEGACY_OFFSET_COMMIT_TYPE = 0
OFFSET_COMMIT_TYPE = 1
GROUP_METADATA_TYPE = 2
OFFSET_COMMIT_VALUE_VERSION = 3
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1  # the only one with an expiry time
GROUP_METADATA_VALUE_VERSION = 3

OFFSET_COMMIT_KEY = RecordSchema(
    "OffsetCommitKey",
    range(0, 2),
    (F("group", "string"), F("topic", "string"), F("partition", "int32")),
)
OFFSET_COMMIT_VALUE = RecordSchema(
    "OffsetCommitValue",
    range(0, 5),
    (
        F("offset", "int64"),
        F("leader_epoch", "int32", since=3, default=-1),
        F("metadata", "string"),
        F("commit_timestamp", "int64"),
        F("expire_timestamp", "int64", since=1, until=1, default=-1),
        F("topic_id", "uuid", since=4, tag=0),
    ),
    flexible_from=4,
)
GROUP_METADATA_KEY = RecordSchema("GroupMetadataKey", range(2, 3), (F("group", "string"),))
GROUP_METADATA_VALUE = RecordSchema(
    "GroupMetadataValue",
    range(0, 5),
    (
        F("protocol_type", "string"),
        F("generation", "int32"),
        F("protocol", "string", nullable=True),
        F("leader", "string", nullable=True),
        F("current_state_timestamp", "int64", since=2, default=-1),
        F(
            "members",
            "MemberMetadata",
            items=(
                F("member_id", "string"),
                F("group_instance_id", "string", nullable=True, since=3),
                F("client_id", "string"),
                F("client_host", "string"),
                F("rebalance_timeout", "int32", since=1, default=0),
                F("session_timeout", "int32"),
                F("subscription", "bytes"),
                F("assignment", "bytes"),
            ),
        ),
    ),
    flexible_from=4,
)


class OffsetAndMetadata(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1  # -1: by offsets.retention.minutes


Key = tuple[str, int]  # topic, partition


def offset_commit_record(group: str, key: Key, value: OffsetAndMetadata) -> CoordinatorRecord:
    version = OFFSET_COMMIT_VALUE_VERSION
    if value.expire_timestamp_ms >= 0:
        version = EXPIRING_OFFSET_COMMIT_VALUE_VERSION
    data = OFFSET_COMMIT_VALUE.write(
        version,
        Struct(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp_ms,
            expire_timestamp=value.expire_timestamp_ms,
        ),
    )
    return CoordinatorRecord(_offset_key(group, key), data)


def offset_tombstone(group: str, key: Key) -> CoordinatorRecord:
    return CoordinatorRecord(_offset_key(group, key), None)


def _offset_key(group: str, key: Key) -> bytes:
    topic, partition = key
    return OFFSET_COMMIT_KEY.write(
        OFFSET_COMMIT_TYPE, Struct(group=group, topic=topic, partition=partition)
    )


def offset_of(value: bytes) -> OffsetAndMetadata:
    """DecodeError if the version of the value is unknown."""
    read = OFFSET_COMMIT_VALUE.read(value)
    return OffsetAndMetadata(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp
    )


def group_metadata_record(group: str, value: Struct) -> CoordinatorRecord:
    key = GROUP_METADATA_KEY.write(GROUP_METADATA_TYPE, Struct(group=group))
    return CoordinatorRecord(key, GROUP_METADATA_VALUE.write(GROUP_METADATA_VALUE_VERSION, value))


def group_tombstone(group: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        GROUP_METADATA_KEY.write(GROUP_METADATA_TYPE, Struct(group=group)), None
    )


Offsets = Mapping[Key, OffsetAndMetadata]
