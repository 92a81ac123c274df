"""Produce (API key 0), versions 3–13: the hot path's own codec.

Called by `handlers/produce.py`. Records are slices of the frame, not copies: the frame is a
bytearray that belongs to the request, and the log patches base offsets in it before it goes to
the disk. Topic ids stay 16 raw bytes, because building a `uuid.UUID` costs 1 µs; partitions are
looked up by those bytes. Property tests hold both directions equal to kio's classes.

    version  3  transactional_id     9  flexible            10  current_leader, node_endpoints
             5  log_start_offset     8  record_errors       13  topic_id instead of the name
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from odradek_broker.wire.errors import DecodeError
from odradek_broker.wire.primitives import (
    ITEMS_MAX,
    NodeEndpoint,
    bad_count,
    compact_string,
    compact_text,
    int32,
    legacy_string,
    legacy_text,
    node_endpoints_section,
    pack_int32,
    skip_tagged_fields,
    topic_id,
)
from odradek_broker.wire.varint import Buffer, read_uvarint, uvarint

FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13

# (name, or None from version 13 on; topic id, or None before; [(partition, records)])
ProduceTopic = tuple[str | None, bytes | None, list[tuple[int, memoryview | None]]]

_TRANSACTIONAL_ID_LENGTH: Final = Struct(">h").unpack_from
_ACKS_TIMEOUT: Final = Struct(">hi").unpack_from
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii").unpack_from
_INDEX_LENGTH: Final = Struct(">ii").unpack_from


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[ProduceTopic]
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProducePartitionResult:
    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "log_append_time_ms",
        "log_start_offset",
        "partition_index",
        "record_errors",
    )

    def __init__(
        self,
        partition_index: int,
        error_code: int = 0,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: Sequence[tuple[int, str | None]] = (),
        error_message: str | None = None,
        current_leader: tuple[int, int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors  # (index in the batch, message)
        self.error_message = error_message
        self.current_leader = current_leader  # (leader_id, leader_epoch)


TopicResult = tuple[str | None, bytes | None, Sequence[ProducePartitionResult]]


def decode_produce(version: int, body: Buffer, at: int = 0) -> ProduceRequest:
    """The request whose body starts at byte `at`. Raises only DecodeError."""
    view = memoryview(body)
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(version, view, at)
        return _decode_legacy(view, at)
    except (error, IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"produce request cut short or malformed: {e}") from None


def _decode_legacy(view: memoryview, at: int) -> ProduceRequest:
    end_of_frame = len(view)
    budget = ITEMS_MAX
    transactional_id = None
    if _TRANSACTIONAL_ID_LENGTH(view, at)[0] < 0:
        at += 2
    else:
        transactional_id, at = legacy_text(view, at)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT(view, at)
    at += 10
    if not 0 <= topic_count <= budget:
        raise bad_count(topic_count)
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, at = legacy_text(view, at)
        (count,) = int32(view, at)
        at += 4
        budget -= count
        if count < 0 or budget < 0:
            raise bad_count(count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, length = _INDEX_LENGTH(view, at)
            at += 8
            if length < 0:
                partitions.append((index, None))
                continue
            end = at + length
            if end > end_of_frame:
                raise DecodeError("records longer than the frame")
            partitions.append((index, view[at:end]))
            at = end
        topics.append((name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(version: int, view: memoryview, at: int) -> ProduceRequest:
    end_of_frame = len(view)
    budget = ITEMS_MAX
    transactional_id = None
    if view[at]:
        transactional_id, at = compact_text(view, at)
    else:
        at += 1
    acks, timeout_ms = _ACKS_TIMEOUT(view, at)
    topic_count, at = read_uvarint(view, at + 6)
    if not 0 < topic_count <= budget:
        raise bad_count(topic_count - 1)
    topics: list[ProduceTopic] = []
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
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            (index,) = int32(view, at)
            length, at = read_uvarint(view, at + 4)
            records = None
            if length:
                end = at + length - 1
                if end > end_of_frame:
                    raise DecodeError("records longer than the frame")
                records = view[at:end]
                at = end
            partitions.append((index, records))
            at = skip_tagged_fields(view, at) if view[at] else at + 1
        topics.append((name, raw_id, partitions))
        at = skip_tagged_fields(view, at) if view[at] else at + 1
    if view[at]:
        skip_tagged_fields(view, at)  # checks them
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


_RESULT_V3: Final = Struct(">ihqq").pack
_RESULT_V5: Final = Struct(">ihqqq").pack
_RESULT_ONE_TAG: Final = Struct(">BBBiiB").pack


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicResult],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Header and body of the response, without the 4-byte size in front."""
    if version >= FLEXIBLE_FROM:
        return _encode_flexible(version, correlation_id, topics, throttle_time_ms, node_endpoints)
    out = bytearray(pack_int32(correlation_id))
    out += pack_int32(len(topics))
    for name, _, partitions in topics:
        out += legacy_string(name)
        out += pack_int32(len(partitions))
        for one in partitions:
            out += _offsets(one, version)
            if version >= 8:
                out += pack_int32(len(one.record_errors))
                for batch_index, text in one.record_errors:
                    out += pack_int32(batch_index) + legacy_string(text)
                out += legacy_string(one.error_message)
    out += pack_int32(throttle_time_ms)
    return bytes(out)


def _offsets(one: ProducePartitionResult, version: int) -> bytes:
    index, code, base = one.partition_index, one.error_code, one.base_offset
    if version < 5:
        return _RESULT_V3(index, code, base, one.log_append_time_ms)
    return _RESULT_V5(index, code, base, one.log_append_time_ms, one.log_start_offset)


def _encode_flexible(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicResult],
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    out = bytearray(pack_int32(correlation_id))
    out += b"\0"  # no tagged fields in the header
    out += uvarint(len(topics) + 1)
    for name, raw_id, partitions in topics:
        if version >= TOPIC_ID_FROM:
            assert raw_id is not None
            out += raw_id
        else:
            out += compact_string(name)
        out += uvarint(len(partitions) + 1)
        for one in partitions:
            out += _offsets(one, version)
            out += uvarint(len(one.record_errors) + 1)
            for batch_index, text in one.record_errors:
                out += pack_int32(batch_index) + compact_string(text) + b"\0"
            out += compact_string(one.error_message)
            leader = one.current_leader
            if leader is None or leader == (-1, -1) or version < 10:
                out += b"\0"
            else:
                out += _RESULT_ONE_TAG(1, 0, 9, *leader, 0)
        out += b"\0"
    out += pack_int32(throttle_time_ms)
    out += node_endpoints_section(node_endpoints) if version >= 10 else b"\0"
    return bytes(out)
