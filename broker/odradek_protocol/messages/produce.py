"""Produce (API key 0), versions 3–13: the hot path's own codec.

Called by `handlers/produce.py`. Records are ranges of the frame, not copies. Topic ids stay 16 raw
bytes, because building a `uuid.UUID` costs 1 µs; partitions are looked up by those bytes. Request
and response of a partition share one object, which saves an allocation per request. Property tests
hold both directions equal to kio's classes.

    version  3  transactional_id     9  flexible            10  current_leader, node_endpoints
             5  log_start_offset     8  record_errors       13  topic_id instead of the name
"""

from collections.abc import Sequence
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)

from odradek_protocol.byte_range import ByteRange
from odradek_protocol.errors import DecodeError
from odradek_protocol.primitives import (
    ITEMS_MAX,
    NodeEndpoint,
    bad_count,
    compact_string,
    compact_text,
    legacy_string,
    legacy_text,
    node_endpoints_section,
    skip_tagged_fields,
    topic_id,
    write_legacy_string,
)
from odradek_protocol.varint import read_uvarint, uvarint

FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13


class ProducePartition:
    """One partition of a request; from `error_code` on, of its response."""

    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "records",
    )

    def __init__(self, index: int, records: ByteRange | None = None) -> None:
        self.index = index
        self.records = records
        self.error_code = 0
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.record_errors: Sequence[tuple[int, str | None]] = ()  # (index in the batch, message)
        self.error_message: str | None = None
        self.current_leader: tuple[int, int] | None = None  # (leader_id, leader_epoch)


class ProduceTopic:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self, name: str | None, topic_id: bytes | None, partitions: list[ProducePartition]
    ) -> None:
        self.name = name  # None from version 13 on
        self.topic_id = topic_id  # None before
        self.partitions = partitions


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[ProduceTopic]
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


def decode_produce(version: int, frame: bytes, at: int = 0) -> ProduceRequest:
    """The request whose body starts at byte `at`. Raises only DecodeError."""
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(version, frame, at)
        return _decode_legacy(frame, at)
    except (IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"produce request cut short or malformed: {e}") from None


def _decode_legacy(frame: bytes, at: int) -> ProduceRequest:
    budget = ITEMS_MAX
    transactional_id = None
    if read_i16_be(frame, at) < 0:
        at += 2
    else:
        transactional_id, at = legacy_text(frame, at)
    acks: int = read_i16_be(frame, at)
    timeout_ms: int = read_i32_be(frame, at + 2)
    topic_count: int = read_i32_be(frame, at + 6)
    at += 10
    if not 0 <= topic_count <= budget:
        raise bad_count(topic_count)
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, at = legacy_text(frame, at)
        count: int = read_i32_be(frame, at)
        at += 4
        budget -= count
        if count < 0 or budget < 0:
            raise bad_count(count)
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index: int = read_i32_be(frame, at)
            length: int = read_i32_be(frame, at + 4)
            at += 8
            records = None
            if length >= 0:
                records, at = _records(frame, at, length)
            partitions.append(ProducePartition(index, records))
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(version: int, frame: bytes, at: int) -> ProduceRequest:
    budget = ITEMS_MAX
    transactional_id = None
    if frame[at]:
        transactional_id, at = compact_text(frame, at)
    else:
        at += 1
    acks: int = read_i16_be(frame, at)
    timeout_ms: int = read_i32_be(frame, at + 2)
    topic_count, at = read_uvarint(frame, at + 6)
    if not 0 < topic_count <= budget:
        raise bad_count(topic_count - 1)
    topics: list[ProduceTopic] = []
    for _ in range(topic_count - 1):
        name = raw_id = None
        if version >= TOPIC_ID_FROM:
            raw_id, at = topic_id(frame, at)
        else:
            name, at = compact_text(frame, at)
        count, at = read_uvarint(frame, at)
        budget -= count
        if count == 0 or budget < 0:
            raise bad_count(count - 1)
        partitions: list[ProducePartition] = []
        for _ in range(count - 1):
            index: int = read_i32_be(frame, at)
            length, at = read_uvarint(frame, at + 4)
            records = None
            if length:
                records, at = _records(frame, at, length - 1)
            partitions.append(ProducePartition(index, records))
            at = skip_tagged_fields(frame, at) if frame[at] else at + 1
        topics.append(ProduceTopic(name, raw_id, partitions))
        at = skip_tagged_fields(frame, at) if frame[at] else at + 1
    if frame[at]:
        skip_tagged_fields(frame, at)  # checks them
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _records(frame: bytes, at: int, length: int) -> tuple[ByteRange, int]:
    end = at + length
    if end > len(frame):
        raise DecodeError("records longer than the frame")
    return ByteRange(frame, at, end), end


_ONE_TAG_OF_NINE_BYTES: Final = b"\x01\x00\x09"


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: list[ProduceTopic],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Header and body of the response, without the 4-byte size in front."""
    out = BytesWriter()
    write_i32_be(out, correlation_id)
    if version >= FLEXIBLE_FROM:
        _write_flexible(out, version, topics, throttle_time_ms, node_endpoints)
        return out.getvalue()
    write_i32_be(out, len(topics))
    for topic in topics:
        write_legacy_string(out, topic.name or "")
        write_i32_be(out, len(topic.partitions))
        for one in topic.partitions:
            _write_offsets(out, one, version)
            if version >= 8:
                write_i32_be(out, len(one.record_errors))
                for batch_index, text in one.record_errors:
                    write_i32_be(out, batch_index)
                    out.write(legacy_string(text))
                out.write(legacy_string(one.error_message))
    write_i32_be(out, throttle_time_ms)
    return out.getvalue()


def _write_offsets(out: BytesWriter, one: ProducePartition, version: int) -> None:
    write_i32_be(out, one.index)
    write_i16_be(out, one.error_code)
    write_i64_be(out, one.base_offset)
    write_i64_be(out, one.log_append_time_ms)
    if version >= 5:
        write_i64_be(out, one.log_start_offset)


def _write_flexible(
    out: BytesWriter,
    version: int,
    topics: list[ProduceTopic],
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> None:
    out.append(0)  # no tagged fields in the header
    out.write(uvarint(len(topics) + 1))
    for topic in topics:
        if version >= TOPIC_ID_FROM:
            assert topic.topic_id is not None
            out.write(topic.topic_id)
        else:
            out.write(compact_string(topic.name))
        out.write(uvarint(len(topic.partitions) + 1))
        for one in topic.partitions:
            _write_offsets(out, one, version)
            out.write(uvarint(len(one.record_errors) + 1))
            for batch_index, text in one.record_errors:
                write_i32_be(out, batch_index)
                out.write(compact_string(text))
                out.append(0)
            out.write(compact_string(one.error_message))
            leader = one.current_leader
            if leader is not None and leader != (-1, -1) and version >= 10:
                out.write(_ONE_TAG_OF_NINE_BYTES)
                write_i32_be(out, leader[0])
                write_i32_be(out, leader[1])
            out.append(0)
        out.append(0)
    write_i32_be(out, throttle_time_ms)
    out.write(node_endpoints_section(node_endpoints) if version >= 10 else b"\0")
