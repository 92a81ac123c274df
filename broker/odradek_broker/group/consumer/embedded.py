"""The consumers' own protocol inside JoinGroup and SyncGroup: subscriptions and assignments.

Members of the classic protocol put these bytes into opaque fields for the group's leader. A
coordinator that computes the assignment has to read and write them. Both begin with an int16
version; kio has the layouts. An unknown newer version is read as the newest known one, as in Kafka.
"""

import struct
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from odradek_broker.group.consumer.member import OwnedPartitions, Partitions
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.decode import compile_reader
from odradek_protocol.messages.encode import compile_writer
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import ITEMS_MAX

SUBSCRIPTION, SUBSCRIPTION_VERSION_MAX = "ConsumerProtocolSubscription", 3
ASSIGNMENT, ASSIGNMENT_VERSION_MAX = "ConsumerProtocolAssignment", 3
MODULES = {
    SUBSCRIPTION: "consumer_protocol_subscription",
    ASSIGNMENT: "consumer_protocol_assignment",
}
LATER_FIELDS = {SUBSCRIPTION: {"owned_partitions": (), "generation_id": -1, "rack_id": None}}


def read_subscription(metadata: bytes) -> Struct:
    """`topics`, `user_data`, `owned_partitions`, `rack_id`, …; DecodeError if it is malformed."""
    return _read(SUBSCRIPTION, metadata, SUBSCRIPTION_VERSION_MAX)


def read_assignment(assignment: bytes, image: MetadataImage) -> Partitions:
    """By topic id, without deleted topics. Empty bytes mean no partitions."""
    if not assignment:
        return {}
    return with_ids(
        _read(ASSIGNMENT, assignment, ASSIGNMENT_VERSION_MAX).assigned_partitions, image
    )


def with_ids(topics: list[Struct], image: MetadataImage) -> Partitions:
    partitions: dict[TopicId, frozenset[int]] = {}
    for item in topics:
        topic = image.topics.get(item.topic)
        if topic is not None:
            had = partitions.get(topic.id, frozenset())
            partitions[topic.id] = had.union(item.partitions)
    return partitions


def write_assignment(assigned: OwnedPartitions, image: MetadataImage, version: int) -> bytes:
    """In the version of the member's subscription, which the member can read."""
    version = min(version, ASSIGNMENT_VERSION_MAX)
    names: Mapping[TopicId, Any] = image.topics_by_id
    value = Struct(
        assigned_partitions=[
            Struct(topic=names[topic_id].name, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
            if topic_id in names
        ],
        user_data=None,
    )
    out = bytearray(struct.pack(">h", version))
    compile_writer(_class(ASSIGNMENT, version), {})(out, value)
    return bytes(out)


def version_of(metadata: bytes) -> int:
    if len(metadata) < 2:
        raise DecodeError("the embedded protocol has no version")
    return int(struct.unpack_from(">h", metadata)[0])


def _read(name: str, data: bytes, version_max: int) -> Struct:
    version = version_of(data)
    if version < 0:
        raise DecodeError(f"{name}: unknown version {version}")
    reader = compile_reader(
        _class(name, min(version, version_max)), {name: LATER_FIELDS.get(name, {})}
    )
    try:
        value, _ = reader(data, 2, [ITEMS_MAX])
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"{name}: {error}") from None
    assert isinstance(value, Struct)
    return value


@cache
def _class(name: str, version: int) -> type:
    cls = getattr(import_module(f"kio.schema.{MODULES[name]}.v{version}.data"), name)
    assert isinstance(cls, type)
    return cls
