"""Fetch (API key 1), versions 4–18: the hot path's own codec.

Called by `handlers/fetch.py`. The response is a list of chunks: bytes, and between them the records
as they were passed in (bytes, or anything with a `length`, such as the log's FileRange, which goes
to the socket by sendfile). Records are never copied. Example: a response with two partitions that
have records is 5 chunks. Topic ids are 16 raw bytes, as in produce.py. Property tests hold both
directions equal to kio's classes.

    version  4  isolation_level, aborted transactions     12  flexible, last_fetched_epoch
             5  log_start_offset                          13  topic_id instead of the name
             7  sessions, forgotten topics                15  replica_state instead of replica_id
             9  current_leader_epoch                      16  node_endpoints
            11  rack_id, preferred_read_replica           17  replica_directory_id
                                                          18  high_watermark
"""

from collections.abc import Sequence
from struct import Struct, error, unpack_from
from typing import Final, NamedTuple, Protocol

from odradek_protocol.errors import DecodeError
from odradek_protocol.primitives import (
    ITEMS_MAX,
    NodeEndpoint,
    bad_count,
    compact_string,
    compact_text,
    int32,
    int64,
    legacy_string,
    legacy_text,
    node_endpoints_section,
    pack_int16,
    pack_int32,
    skip_tagged_fields,
    tagged_fields,
    topic_id,
)
from odradek_protocol.varint import read_uvarint, uvarint

FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13
LONG_MAX: Final = 2**63 - 1


class HasLength(Protocol):
    @property
    def length(self) -> int: ...


Records = bytes | HasLength
Chunk = bytes | HasLength


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int  # of the follower; -1 from consumers
    partition_max_bytes: int
    replica_directory_id: bytes | None = None
    high_watermark: int = LONG_MAX  # that the follower knows


# (name, or None from version 13 on; topic id, or None before; partitions)
FetchTopic = tuple[str | None, bytes | None, list[FetchPartition]]
ForgottenTopic = tuple[str | None, bytes | None, list[int]]


class FetchRequest(NamedTuple):
    replica_id: int  # -1 from consumers
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str = ""
    cluster_id: str | None = None


_REPLICA_STATE: Final = Struct(">iq").unpack_from
_HEAD_V4: Final = Struct(">iiiib").unpack_from  # replica_id … isolation_level
_HEAD_V7: Final = Struct(">iiiibii").unpack_from  # … session_id, session_epoch
_HEAD_V15: Final = Struct(">iiibii").unpack_from  # without replica_id
_PARTITION_V4: Final = Struct(">iqi").unpack_from
_PARTITION_V5: Final = Struct(">iqqi").unpack_from
_PARTITION_V9: Final = Struct(">iiqqi").unpack_from
_PARTITION_V12: Final = Struct(">iiqiqi").unpack_from
_PARTITION_V12_BYTES: Final = 32


def decode_fetch(version: int, frame: bytes, at: int = 0) -> FetchRequest:
    """The request whose body starts at byte `at`. Raises only DecodeError."""
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(version, frame, at)
        return _decode_legacy(version, frame, at)
    except (error, IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"fetch request cut short or malformed: {e}") from None


def _decode_legacy(version: int, frame: bytes, at: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= 7:
        head = _HEAD_V7(frame, at)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = head
        at += 25
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_V4(frame, at)
        at += 17
    (topic_count,) = int32(frame, at)
    at += 4
    budget = ITEMS_MAX
    if not 0 <= topic_count <= budget:
        raise bad_count(topic_count)
    topics: list[FetchTopic] = []
    for _ in range(topic_count):
        name, at = legacy_text(frame, at)
        (count,) = int32(frame, at)
        at += 4
        budget -= count
        if count < 0 or budget < 0:
            raise bad_count(count)
        partitions: list[FetchPartition] = []
        for _ in range(count):
            epoch, log_start = -1, -1
            if version >= 9:
                partition, epoch, offset, log_start, max_part = _PARTITION_V9(frame, at)
                at += 28
            elif version >= 5:
                partition, offset, log_start, max_part = _PARTITION_V5(frame, at)
                at += 24
            else:
                partition, offset, max_part = _PARTITION_V4(frame, at)
                at += 16
            partitions.append(FetchPartition(partition, epoch, offset, -1, log_start, max_part))
        topics.append((name, None, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        forgotten, at = _legacy_forgotten(frame, at)
    rack_id = legacy_text(frame, at)[0] if version >= 11 else ""
    return FetchRequest(
        replica_id, -1, max_wait_ms, min_bytes, max_bytes, isolation,
        session_id, session_epoch, topics, forgotten, rack_id, None,
    )  # fmt: skip


def _legacy_forgotten(frame: bytes, at: int) -> tuple[list[ForgottenTopic], int]:
    (topic_count,) = int32(frame, at)
    at += 4
    if not 0 <= topic_count <= ITEMS_MAX:
        raise bad_count(topic_count)
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count):
        name, at = legacy_text(frame, at)
        (count,) = int32(frame, at)
        partitions, at = _int32_array(frame, at + 4, count)
        forgotten.append((name, None, partitions))
    return forgotten, at


def _decode_flexible(version: int, frame: bytes, at: int) -> FetchRequest:
    replica_id, replica_epoch = -1, -1
    if version < 15:
        (replica_id,) = int32(frame, at)
        at += 4
    max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_V15(frame, at)
    topic_count, at = read_uvarint(frame, at + 21)
    budget = ITEMS_MAX
    if not 0 < topic_count <= budget:
        raise bad_count(topic_count - 1)
    topics: list[FetchTopic] = []
    for _ in range(topic_count - 1):
        name, raw_id, at = _topic(version, frame, at)
        count, at = read_uvarint(frame, at)
        budget -= count
        if count == 0 or budget < 0:
            raise bad_count(count - 1)
        partitions: list[FetchPartition] = []
        for _ in range(count - 1):
            partition = FetchPartition(*_PARTITION_V12(frame, at))
            at += _PARTITION_V12_BYTES
            if frame[at]:
                partition, at = _partition_tags(version, frame, at, partition)
            else:
                at += 1
            partitions.append(partition)
        topics.append((name, raw_id, partitions))
        at = skip_tagged_fields(frame, at) if frame[at] else at + 1
    forgotten, at = _flexible_forgotten(version, frame, at)
    rack_id, at = compact_text(frame, at)
    cluster_id = None
    if frame[at]:
        cluster_id, state = _request_tags(version, frame, at)
        if state is not None:
            replica_id, replica_epoch = state
    return FetchRequest(
        replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation,
        session_id, session_epoch, topics, forgotten, rack_id, cluster_id,
    )  # fmt: skip


def _flexible_forgotten(version: int, frame: bytes, at: int) -> tuple[list[ForgottenTopic], int]:
    topic_count, at = read_uvarint(frame, at)
    if not 0 < topic_count <= ITEMS_MAX:
        raise bad_count(topic_count - 1)
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count - 1):
        name, raw_id, at = _topic(version, frame, at)
        count, at = read_uvarint(frame, at)
        partitions, at = _int32_array(frame, at, count - 1)
        forgotten.append((name, raw_id, partitions))
        at = skip_tagged_fields(frame, at) if frame[at] else at + 1
    return forgotten, at


def _topic(version: int, frame: bytes, at: int) -> tuple[str | None, bytes | None, int]:
    if version >= TOPIC_ID_FROM:
        raw_id, at = topic_id(frame, at)
        return None, raw_id, at
    name, at = compact_text(frame, at)
    return name, None, at


def _partition_tags(
    version: int, frame: bytes, at: int, partition: FetchPartition
) -> tuple[FetchPartition, int]:
    fields, at = tagged_fields(frame, at)
    for tag, start, end in fields:
        if tag == 0 and version >= 17:
            directory_id = frame[start : start + 16]
            start += 16
            partition = partition._replace(replica_directory_id=directory_id)
        elif tag == 1 and version >= 18:
            partition = partition._replace(high_watermark=int64(frame, start)[0])
            start += 8
        else:
            start = end
        if start != end:
            raise DecodeError("tagged field does not have the size it claims")
    return partition, at


def _request_tags(version: int, frame: bytes, at: int) -> tuple[str | None, tuple[int, int] | None]:
    cluster_id: str | None = None
    state: tuple[int, int] | None = None
    fields, _ = tagged_fields(frame, at)
    for tag, start, end in fields:
        if tag == 0:
            cluster_id, start = compact_text(frame, start) if frame[start] else (None, start + 1)
        elif tag == 1 and version >= 15:
            state = _REPLICA_STATE(frame, start)
            start = skip_tagged_fields(frame, start + 12)
        else:
            start = end
        if start != end:
            raise DecodeError("tagged field does not have the size it claims")
    return cluster_id, state


def _int32_array(frame: bytes, at: int, count: int) -> tuple[list[int], int]:
    if not 0 <= count <= ITEMS_MAX:
        raise bad_count(count)
    return list(unpack_from(f">{count}i", frame, at)), at + 4 * count


class FetchPartitionResult(NamedTuple):
    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None  # (producer_id, first_offset)
    preferred_read_replica: int = -1
    records: Records | None = b""
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end_offset)
    current_leader: tuple[int, int] | None = None  # (leader_id, leader_epoch)
    snapshot_id: tuple[int, int] | None = None  # (end_offset, epoch)


TopicResult = tuple[str | None, bytes | None, Sequence[FetchPartitionResult]]

_PACK_TWO_INT64: Final = Struct(">qq").pack
_RESULT_V4: Final = Struct(">ihqq").pack
_RESULT_V5: Final = Struct(">ihqqq").pack
_EPOCH_END: Final = Struct(">BBiqB").pack  # tag, size, epoch, end_offset, no tags
_LEADER: Final = Struct(">BBiiB").pack
_SNAPSHOT: Final = Struct(">BBqiB").pack


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[TopicResult],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> tuple[list[Chunk], int]:
    """Header and body as chunks, and their size together (without the 4-byte size in front)."""
    chunks: list[Chunk] = []
    total = 0
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(pack_int32(correlation_id))
    if flexible:
        out += b"\0"  # no tagged fields in the header
    out += pack_int32(throttle_time_ms)
    if version >= 7:
        out += pack_int16(error_code) + pack_int32(session_id)
    out += uvarint(len(topics) + 1) if flexible else pack_int32(len(topics))
    write_partition = _write_flexible_partition if flexible else _write_legacy_partition
    for name, raw_id, partitions in topics:
        _write_topic(out, version, name, raw_id, len(partitions))
        for partition in partitions:
            write_partition(out, version, partition)
            records = partition[7]
            if records is None:
                out += b"\0" if flexible else b"\xff\xff\xff\xff"
            elif isinstance(records, bytes):
                length = len(records)
                out += uvarint(length + 1) if flexible else pack_int32(length)
                out += records
            else:
                length = records.length
                out += uvarint(length + 1) if flexible else pack_int32(length)
                total += len(out) + length
                chunks += (bytes(out), records)
                out = bytearray()
            if flexible:
                _write_partition_tags(out, partition)
        if flexible:
            out += b"\0"
    if flexible:
        out += node_endpoints_section(node_endpoints) if version >= 16 else b"\0"
    if out:
        chunks.append(bytes(out))
    return chunks, total + len(out)


def _write_topic(
    out: bytearray, version: int, name: str | None, raw_id: bytes | None, count: int
) -> None:
    if version >= TOPIC_ID_FROM:
        assert raw_id is not None
        out += raw_id
        out += uvarint(count + 1)
    elif version >= FLEXIBLE_FROM:
        out += compact_string(name) + uvarint(count + 1)
    else:
        out += legacy_string(name) + pack_int32(count)


def _write_legacy_partition(out: bytearray, version: int, partition: FetchPartitionResult) -> None:
    """Everything before the records."""
    index, code, high_watermark, stable, log_start, aborted, replica = partition[:7]
    if version >= 5:
        out += _RESULT_V5(index, code, high_watermark, stable, log_start)
    else:
        out += _RESULT_V4(index, code, high_watermark, stable)
    if aborted is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += pack_int32(len(aborted))
        for transaction in aborted:
            out += _PACK_TWO_INT64(*transaction)
    if version >= 11:
        out += pack_int32(replica)


def _write_flexible_partition(out: bytearray, _: int, partition: FetchPartitionResult) -> None:
    """Everything before the records."""
    index, code, high_watermark, stable, log_start, aborted, replica = partition[:7]
    out += _RESULT_V5(index, code, high_watermark, stable, log_start)
    if aborted is None:
        out += b"\0"
    else:
        out += uvarint(len(aborted) + 1)
        for transaction in aborted:
            out += _PACK_TWO_INT64(*transaction)
            out += b"\0"
    out += pack_int32(replica)


def _write_partition_tags(out: bytearray, partition: FetchPartitionResult) -> None:
    diverging, leader, snapshot = partition[8:]
    if diverging is None and leader is None and snapshot is None:
        out += b"\0"
        return
    tags = []
    if diverging is not None and diverging != (-1, -1):
        tags.append(_EPOCH_END(0, 13, *diverging, 0))
    if leader is not None and leader != (-1, -1):
        tags.append(_LEADER(1, 9, *leader, 0))
    if snapshot is not None and snapshot != (-1, -1):
        tags.append(_SNAPSHOT(2, 13, *snapshot, 0))
    out.append(len(tags))
    out += b"".join(tags)
