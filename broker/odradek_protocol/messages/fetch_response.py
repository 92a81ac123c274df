"""Fetch (API key 1), versions 12–18, for a follower: it sends requests and reads responses.

Called by the broker's `replication/`; a leader uses fetch.py. The records are views of the received
frame: nothing is copied between the socket and the log. Example: `topics` of a response with one
partition is `[(None, b"<16 bytes>", [FetchedPartition(0, …)])]`.
Property tests hold both directions equal to kio's classes.
"""

from struct import Struct, error
from typing import NamedTuple

from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.fetch import TOPIC_ID_FROM, FetchRequest
from odradek_protocol.primitives import (
    ITEMS_MAX,
    bad_count,
    compact_string,
    compact_text,
    skip_tagged_fields,
    tagged_fields,
    topic_id,
)
from odradek_protocol.varint import Buffer, read_uvarint, uvarint

LOWEST_VERSION = 12
REPLICA_STATE_FROM = 15


class FetchedPartition(NamedTuple):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[tuple[int, int]] | None  # (producer_id, first_offset)
    preferred_read_replica: int
    records: memoryview | None
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end_offset)
    current_leader: tuple[int, int] | None = None  # (leader_id, leader_epoch)
    snapshot_id: tuple[int, int] | None = None  # (end_offset, epoch)


# (name, or None from version 13 on; topic id, or None before; partitions)
FetchedTopic = tuple[str | None, bytes | None, list[FetchedPartition]]


class FetchedResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]


_HEAD = Struct(">ihi").unpack_from  # throttle_time_ms, error_code, session_id
_PARTITION = Struct(">ihqqq").unpack_from
_PARTITION_BYTES = 30
_TWO_INT64 = Struct(">qq").unpack_from
_REPLICA = Struct(">i").unpack_from
# A structure in a tagged field: two numbers and a (usually empty) section of tagged fields.
_TAGGED = {
    0: Struct(">iq").unpack_from,  # diverging_epoch
    1: Struct(">ii").unpack_from,  # current_leader
    2: Struct(">qi").unpack_from,  # snapshot_id
}
_TAGGED_BYTES = {0: 12, 1: 8, 2: 12}


def decode_fetch_response(version: int, body: Buffer, at: int = 0) -> FetchedResponse:
    """The response whose body (after its header) starts at byte `at`. Raises only DecodeError."""
    view = memoryview(body)
    try:
        return _decode(version, view, at)
    except (error, IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"fetch response cut short or malformed: {e}") from None


def _decode(version: int, view: memoryview, at: int) -> FetchedResponse:
    throttle_time_ms, error_code, session_id = _HEAD(view, at)
    topic_count, at = read_uvarint(view, at + 10)
    budget = ITEMS_MAX
    if not 0 < topic_count <= budget:
        raise bad_count(topic_count - 1)
    topics: list[FetchedTopic] = []
    for _ in range(topic_count - 1):
        name = raw_id = None
        if version >= TOPIC_ID_FROM:
            raw_id, at = topic_id(view, at)
        else:
            name, at = compact_text(view, at)
        count, at = read_uvarint(view, at)
        budget -= count
        if count == 0 or budget < 0:
            raise bad_count(count - 1)
        partitions = []
        for _ in range(count - 1):
            partition, at = _decode_partition(view, at)
            partitions.append(partition)
        topics.append((name, raw_id, partitions))
        at = skip_tagged_fields(view, at) if view[at] else at + 1
    if view[at]:
        skip_tagged_fields(view, at)  # node_endpoints; followers use the metadata log instead
    return FetchedResponse(throttle_time_ms, error_code, session_id, topics)


def _decode_partition(view: memoryview, at: int) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, stable, log_start = _PARTITION(view, at)
    aborted, at = _aborted_transactions(view, at + _PARTITION_BYTES)
    (replica,) = _REPLICA(view, at)
    length, at = read_uvarint(view, at + 4)
    records = None
    if length:
        end = at + length - 1
        if end > len(view):
            raise DecodeError("records longer than the frame")
        records = view[at:end]
        at = end
    diverging = leader = snapshot = None
    if view[at]:
        (diverging, leader, snapshot), at = _partition_tags(view, at)
    else:
        at += 1
    partition = FetchedPartition(
        index, error_code, high_watermark, stable, log_start, aborted, replica, records,
        diverging, leader, snapshot,
    )  # fmt: skip
    return partition, at


def _aborted_transactions(view: memoryview, at: int) -> tuple[list[tuple[int, int]] | None, int]:
    count, at = read_uvarint(view, at)
    if count == 0:
        return None, at
    if count > ITEMS_MAX:
        raise bad_count(count - 1)
    aborted = []
    for _ in range(count - 1):
        aborted.append(_TWO_INT64(view, at))
        at += 16
        at = skip_tagged_fields(view, at) if view[at] else at + 1
    return aborted, at


def _partition_tags(view: memoryview, at: int) -> tuple[list[tuple[int, int] | None], int]:
    found: list[tuple[int, int] | None] = [None, None, None]
    fields, at = tagged_fields(view, at)
    for tag, start, end in fields:
        if tag not in _TAGGED:
            continue
        found[tag] = _TAGGED[tag](view, start)
        if skip_tagged_fields(view, start + _TAGGED_BYTES[tag]) != end:
            raise DecodeError("tagged field does not have the size it claims")
    return found, at


# --- requests ---------------------------------------------------------------------------------

_REQUEST_HEAD = Struct(">iiibii").pack  # max_wait_ms … session_epoch
_REQUEST_PARTITION = Struct(">iiqiqiB").pack
_REPLICA_ID = Struct(">i").pack
_REPLICA_STATE = Struct(">BBiqB").pack  # tag, size, replica_id, replica_epoch, no tags
_INT32 = Struct(">i").pack


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body of a follower's fetch: its rack, cluster id and directory ids are not sent."""
    out = bytearray()
    if version < REPLICA_STATE_FROM:
        out += _REPLICA_ID(request.replica_id)
    out += _REQUEST_HEAD(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    out += uvarint(len(request.topics) + 1)
    for name, raw_id, partitions in request.topics:
        out += _topic_key(version, name, raw_id)
        out += uvarint(len(partitions) + 1)
        for partition in partitions:
            out += _REQUEST_PARTITION(*partition[:6], 0)
        out += b"\0"
    out += uvarint(len(request.forgotten_topics) + 1)
    for name, raw_id, indexes in request.forgotten_topics:
        out += _topic_key(version, name, raw_id)
        out += uvarint(len(indexes) + 1)
        for index in indexes:
            out += _INT32(index)
        out += b"\0"
    out += b"\x01"  # rack_id ""
    if version >= REPLICA_STATE_FROM:
        out += b"\x01" + _REPLICA_STATE(1, 13, request.replica_id, request.replica_epoch, 0)
    else:
        out += b"\0"
    return bytes(out)


def _topic_key(version: int, name: str | None, raw_id: bytes | None) -> bytes:
    if version >= TOPIC_ID_FROM:
        assert raw_id is not None
        return raw_id
    return compact_string(name)
