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
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from odradek_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    SupportedFeature,
    TopicRecord,
    UnregisterBrokerRecord,
)
from odradek_broker.wire.errors import DecodeError
from odradek_broker.wire.varint import read_uvarint, write_uvarint

FRAME_VERSION = 1

# Ids and lists of replicas repeat in nearly all partitions: one object for equal ones saves
# most of the time and memory of a replay.
SHARED_VALUES_MAX = 4096

Read = Callable[[bytes, int], tuple[Any, int]]  # (bytes, position) → (value, next position)
Write = Callable[[bytearray, Any], None]


class Codec(NamedTuple):
    read: Read
    write: Write


def _fixed(format_: str) -> Codec:
    layout = struct.Struct(format_)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return layout.unpack_from(data, at)[0], at + layout.size

    def write(out: bytearray, value: Any) -> None:
        out += layout.pack(value)

    return Codec(read, write)


def _read_string(data: bytes, at: int) -> tuple[str | None, int]:
    length, at = read_uvarint(data, at)
    if length == 0:
        return None, at
    end = at + length - 1
    if end > len(data):
        raise DecodeError("metadata record: string longer than the record")
    return data[at:end].decode(), end


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    encoded = value.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded


@lru_cache(maxsize=SHARED_VALUES_MAX)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


@lru_cache(maxsize=SHARED_VALUES_MAX)
def _uuids(data: bytes) -> tuple[UUID, ...]:
    return tuple(_uuid(data[at : at + 16]) for at in range(0, len(data), 16))


@lru_cache(maxsize=SHARED_VALUES_MAX)
def _int32s(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 4}i", data)


def _read_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    return _uuid(data[at : at + 16]), at + 16


def _write_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes


def _array(item: Codec) -> Codec:
    read_item, write_item = item

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_uvarint(data, at)
        if count == 0:
            return None, at
        if count - 1 > len(data) - at:
            raise DecodeError("metadata record: array longer than the record")
        values = []
        for _ in range(count - 1):
            value, at = read_item(data, at)
            values.append(value)
        return tuple(values), at

    def write(out: bytearray, values: tuple[Any, ...] | None) -> None:
        if values is None:
            out.append(0)
            return
        write_uvarint(out, len(values) + 1)
        for value in values:
            write_item(out, value)

    return Codec(read, write)


def _fixed_array(item: Codec, item_bytes: int, decode: Callable[[bytes], Any]) -> Codec:
    """An array whose items all have one size: read as one slice."""

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_uvarint(data, at)
        if count == 0:
            return None, at
        end = at + (count - 1) * item_bytes
        if end > len(data):
            raise DecodeError("metadata record: array longer than the record")
        return decode(data[at:end]), end

    return Codec(read, _array(item).write)


class Field(NamedTuple):
    name: str
    codec: Codec
    tag: int | None = None


class Layout(NamedTuple):
    """The fields of a structure in their order on the wire; tagged ones come last."""

    cls: type
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]
    defaults: dict[str, Any]


def _layout(cls: type, *columns: Field) -> Layout:
    given = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    tagged = tuple(column for column in columns if column.tag is not None)
    # A tagged field that is absent has the record's default, and an array's is the empty one.
    defaults = {column.name: given.get(column.name, ()) for column in tagged}
    return Layout(cls, tuple(c for c in columns if c.tag is None), tagged, defaults)


def _read_layout(layout: Layout, data: bytes, at: int) -> tuple[Any, int]:
    values = dict(layout.defaults)
    for name, codec, _ in layout.fields:
        values[name], at = codec.read(data, at)
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        for name, codec, known_tag in layout.tagged:
            if tag == known_tag:
                values[name], _ = codec.read(data, at)
        at += size
    return layout.cls(**values), at


def _write_layout(layout: Layout, out: bytearray, value: Any) -> None:
    for name, codec, _ in layout.fields:
        codec.write(out, getattr(value, name))
    tagged = [f for f in layout.tagged if getattr(value, f.name) != layout.defaults[f.name]]
    write_uvarint(out, len(tagged))
    for name, codec, tag in tagged:
        assert tag is not None
        content = bytearray()
        codec.write(content, getattr(value, name))
        write_uvarint(out, tag)
        write_uvarint(out, len(content))
        out += content


def _nested(layout: Layout) -> Codec:
    return Codec(
        lambda data, at: _read_layout(layout, data, at),
        lambda out, value: _write_layout(layout, out, value),
    )


INT8, INT16, UINT16 = _fixed(">b"), _fixed(">h"), _fixed(">H")
INT32, INT64, BOOL = _fixed(">i"), _fixed(">q"), _fixed(">?")
STRING = Codec(_read_string, _write_string)
UUID_ = Codec(_read_uuid, _write_uuid)
INT32S = _fixed_array(INT32, 4, _int32s)
UUIDS = _fixed_array(UUID_, 16, _uuids)
RESOURCE_TYPE = Codec(lambda data, at: (ResourceType(data[at]), at + 1), INT8.write)
ENDPOINTS = _array(
    _nested(
        _layout(
            Endpoint,
            Field("name", STRING),
            Field("host", STRING),
            Field("port", UINT16),
            Field("security_protocol", INT16),
        )
    )
)
FEATURES = _array(
    _nested(
        _layout(
            SupportedFeature,
            Field("name", STRING),
            Field("min_supported_version", INT16),
            Field("max_supported_version", INT16),
        )
    )
)


class _Type(NamedTuple):
    """Written in `version`; older ones that lack only tagged fields are read too."""

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
        _layout(
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
        _layout(UnregisterBrokerRecord, Field("broker_id", INT32), Field("broker_epoch", INT64)),
    ),
    _Type(2, 0, _layout(TopicRecord, Field("name", STRING), Field("topic_id", UUID_))),
    _Type(
        3,
        2,
        _layout(
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
        _layout(
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
        _layout(
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
    _Type(9, 0, _layout(RemoveTopicRecord, Field("topic_id", UUID_))),
    _Type(12, 0, _layout(FeatureLevelRecord, Field("name", STRING), Field("feature_level", INT16))),
    _Type(
        15,
        0,
        _layout(
            ProducerIdsRecord,
            Field("broker_id", INT32),
            Field("broker_epoch", INT64),
            Field("next_producer_id", INT64),
        ),
    ),
    _Type(
        17,
        2,
        _layout(
            BrokerRegistrationChangeRecord,
            Field("broker_id", INT32),
            Field("broker_epoch", INT64),
            Field("fenced", INT8, tag=0),
            Field("in_controlled_shutdown", INT8, tag=1),
            Field("log_dirs", UUIDS, tag=2),
        ),
    ),
    _Type(20, 0, _layout(NoOpRecord)),
)
_BY_CLASS = {type_.layout.cls: type_ for type_ in _TYPES}
_BY_KEY = {type_.api_key: type_ for type_ in _TYPES}


def encode_record(record: MetadataRecord) -> bytes:
    api_key, version, layout, _ = _BY_CLASS[type(record)]
    out = bytearray()
    write_uvarint(out, FRAME_VERSION)
    write_uvarint(out, api_key)
    write_uvarint(out, version)
    _write_layout(layout, out, record)
    return bytes(out)


def decode_record(data: bytes) -> MetadataRecord:
    """Raises DecodeError: a record that this version does not know must not be skipped."""
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
        record, at = _read_layout(type_.layout, data, at)
    except (IndexError, ValueError, struct.error) as error:
        raise DecodeError(f"metadata record cut short or malformed: {error}") from None
    if at != len(data):
        raise DecodeError(f"metadata record: {len(data) - at} bytes too many")
    return record
