"""Metadata records as bytes: Apache Kafka's own encoding, so that its tools read our log.

A record is the value of one record of a batch in `__cluster_metadata-0`:

    frame version   unsigned varint, 1
    record type     unsigned varint, e.g. 2 = TopicRecord
    version         unsigned varint, of that type's layout
    fields          in order, in the protocol's flexible encoding
    tagged fields   count, then (tag, size, value) for those that are not at their default

Example: TopicRecord("a", id 7) is `01 02 00  02 61  00…07  00`: frame 1, type 2, version 0,
a 1-byte string, 16 bytes of id, no tagged fields. Called by the controller's metadata log.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    SupportedFeature,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from odradek_broker.metadata.scram import ScramMechanism
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.errors import DecodeError
from odradek_protocol.records.record_layout import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT32S,
    INT64,
    STRING,
    UINT16,
    UUID_,
    UUIDS,
    Codec,
    Field,
    Layout,
    array,
    layout,
    nested,
    read_layout,
    write_layout,
)
from odradek_protocol.varint import read_uvarint, write_uvarint

FRAME_VERSION = 1


def _one_byte(kind: type[IntEnum]) -> Codec:
    return Codec(lambda data, at: (kind(data[at]), at + 1), INT8.write)


RESOURCE_TYPE = _one_byte(ResourceType)
SCRAM_MECHANISM = _one_byte(ScramMechanism)
ENDPOINTS = array(
    nested(
        layout(
            Endpoint,
            Field("name", STRING),
            Field("host", STRING),
            Field("port", UINT16),
            Field("security_protocol", INT16),
        )
    )
)
FEATURES = array(
    nested(
        layout(
            SupportedFeature,
            Field("name", STRING),
            Field("min_supported_version", INT16),
            Field("max_supported_version", INT16),
        )
    )
)


QUOTA_ENTITY = array(
    nested(
        layout(QuotaEntityData, Field("entity_type", STRING), Field("entity_name", STRING)),
    )
)


class _Type(NamedTuple):
    """Written in `version`; older versions that lack only tagged fields can be read too."""

    api_key: int
    version: int
    layout: Layout
    lowest_version: int | None = None

    def reads(self, version: int) -> bool:
        lowest = self.version if self.lowest_version is None else self.lowest_version
        return lowest <= version <= self.version


_TYPES = (
    _Type(
        0,
        3,
        layout(
            RegisterBrokerRecord,
            Field("broker_id", INT32),
            Field("is_migrating_zk_broker", BOOL),
            Field("incarnation_id", UUID_),
            Field("broker_epoch", INT64),
            Field("end_points", ENDPOINTS),
            Field("features", FEATURES),
            Field("rack", STRING),
            Field("fenced", BOOL),
            Field("in_controlled_shutdown", BOOL),
            Field("log_dirs", UUIDS, tag=0),
        ),
    ),
    _Type(
        1,
        0,
        layout(UnregisterBrokerRecord, Field("broker_id", INT32), Field("broker_epoch", INT64)),
    ),
    _Type(2, 0, layout(TopicRecord, Field("name", STRING), Field("topic_id", UUID_))),
    _Type(
        3,
        2,
        layout(
            PartitionRecord,
            Field("partition_id", INT32),
            Field("topic_id", UUID_),
            Field("replicas", INT32S),
            Field("isr", INT32S),
            Field("removing_replicas", INT32S),
            Field("adding_replicas", INT32S),
            Field("leader", INT32),
            Field("leader_recovery_state", INT8, tag=0),
            Field("leader_epoch", INT32),
            Field("partition_epoch", INT32),
            Field("directories", UUIDS),
            Field("eligible_leader_replicas", INT32S, tag=1),
            Field("last_known_elr", INT32S, tag=2),
        ),
        lowest_version=1,
    ),
    _Type(
        4,
        0,
        layout(
            ConfigRecord,
            Field("resource_type", RESOURCE_TYPE),
            Field("resource_name", STRING),
            Field("name", STRING),
            Field("value", STRING),
        ),
    ),
    _Type(
        5,
        2,
        layout(
            PartitionChangeRecord,
            Field("partition_id", INT32),
            Field("topic_id", UUID_),
            Field("isr", INT32S, tag=0),
            Field("leader", INT32, tag=1),
            Field("replicas", INT32S, tag=2),
            Field("removing_replicas", INT32S, tag=3),
            Field("adding_replicas", INT32S, tag=4),
            Field("leader_recovery_state", INT8, tag=5),
            Field("eligible_leader_replicas", INT32S, tag=6),
            Field("last_known_elr", INT32S, tag=7),
            Field("directories", UUIDS, tag=8),
        ),
        lowest_version=1,
    ),
    _Type(9, 0, layout(RemoveTopicRecord, Field("topic_id", UUID_))),
    _Type(
        10,
        0,
        layout(
            DelegationTokenRecord,
            Field("owner", STRING),
            Field("requester", STRING),
            Field("renewers", array(STRING)),
            Field("issue_timestamp", INT64),
            Field("max_timestamp", INT64),
            Field("expiration_timestamp", INT64),
            Field("token_id", STRING),
        ),
    ),
    _Type(
        11,
        0,
        layout(
            UserScramCredentialRecord,
            Field("name", STRING),
            Field("mechanism", SCRAM_MECHANISM),
            Field("salt", BYTES),
            Field("stored_key", BYTES),
            Field("server_key", BYTES),
            Field("iterations", INT32),
        ),
    ),
    _Type(12, 0, layout(FeatureLevelRecord, Field("name", STRING), Field("feature_level", INT16))),
    _Type(
        14,
        0,
        layout(
            ClientQuotaRecord,
            Field("entity", QUOTA_ENTITY),
            Field("key", STRING),
            Field("value", FLOAT64),
            Field("remove", BOOL),
        ),
    ),
    _Type(
        15,
        0,
        layout(
            ProducerIdsRecord,
            Field("broker_id", INT32),
            Field("broker_epoch", INT64),
            Field("next_producer_id", INT64),
        ),
    ),
    _Type(
        17,
        2,
        layout(
            BrokerRegistrationChangeRecord,
            Field("broker_id", INT32),
            Field("broker_epoch", INT64),
            Field("fenced", INT8, tag=0),
            Field("in_controlled_shutdown", INT8, tag=1),
            Field("log_dirs", UUIDS, tag=2),
        ),
    ),
    _Type(
        18,
        0,
        layout(
            AccessControlEntryRecord,
            Field("id", UUID_),
            Field("resource_type", _one_byte(AclResource)),
            Field("resource_name", STRING),
            Field("pattern_type", _one_byte(PatternType)),
            Field("principal", STRING),
            Field("host", STRING),
            Field("operation", _one_byte(AclOperation)),
            Field("permission_type", _one_byte(AclPermission)),
        ),
    ),
    _Type(19, 0, layout(RemoveAccessControlEntryRecord, Field("id", UUID_))),
    _Type(20, 0, layout(NoOpRecord)),
    _Type(
        22,
        0,
        layout(
            RemoveUserScramCredentialRecord,
            Field("name", STRING),
            Field("mechanism", SCRAM_MECHANISM),
        ),
    ),
    _Type(26, 0, layout(RemoveDelegationTokenRecord, Field("token_id", STRING))),
)
_BY_CLASS = {type_.layout.cls: type_ for type_ in _TYPES}
_BY_KEY = {type_.api_key: type_ for type_ in _TYPES}


def encode_record(record: MetadataRecord) -> bytes:
    api_key, version, layout, _ = _BY_CLASS[type(record)]
    out = bytearray()
    write_uvarint(out, FRAME_VERSION)
    write_uvarint(out, api_key)
    write_uvarint(out, version)
    write_layout(layout, out, record)
    return bytes(out)


def decode_record(data: bytes) -> MetadataRecord:
    """Raises DecodeError for an unknown record: it must not be skipped."""
    try:
        frame_version, at = read_uvarint(data, 0)
        api_key, at = read_uvarint(data, at)
        version, at = read_uvarint(data, at)
        type_ = _BY_KEY.get(api_key)
        if frame_version != FRAME_VERSION or type_ is None or not type_.reads(version):
            raise DecodeError(
                f"metadata record: frame version {frame_version}, type {api_key}, "
                f"version {version} is not known"
            )
        record: MetadataRecord
        record, at = read_layout(type_.layout, data, at)
    except (IndexError, ValueError, struct.error) as error:
        raise DecodeError(f"metadata record cut short or malformed: {error}") from None
    if at != len(data):
        raise DecodeError(f"metadata record: {len(data) - at} bytes too many")
    return record
