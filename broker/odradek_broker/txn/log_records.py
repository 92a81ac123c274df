"""The records of `__transaction_state`, in Kafka's encoding, so that its tools read them.

    key    version i16 (0), transactional id as a string with an i16 length
    value  version i16 (1), then in the protocol's flexible encoding: producer id i64, epoch i16,
           timeout i32, state i8, partitions (null in Empty), last update i64, start i64;
           tagged: 0 previous producer id, 1 next producer id, 2 client transaction version

A null value (tombstone) means that the id expired. Version 0 of the value (Kafka before 4.0) can
be read, too. Tag 100 is ours; Kafka skips it as unknown. It holds the last producer epoch, so that
the next coordinator recognises a repeated InitProducerId as well.

`kafka-dump-log --transaction-log-decoder` shows them.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable

from odradek_broker.txn.metadata import NO_EPOCH, TransactionMetadata
from odradek_broker.txn.states import TransactionState
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import NO_PRODUCER_ID, TopicPartition
from odradek_protocol.primitives import (
    bad_count,
    compact_string,
    compact_text,
    int16,
    int32,
    legacy_string,
    legacy_text,
    pack_int16,
    skip_tagged_fields,
    tagged_fields,
)
from odradek_protocol.varint import read_uvarint, uvarint

KEY_VERSION = 0
VALUE_VERSION = 1

PREVIOUS_PRODUCER_ID, NEXT_PRODUCER_ID, CLIENT_TRANSACTION_VERSION = range(3)
LAST_PRODUCER_EPOCH = 100

_HEAD = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES = struct.Struct(">qq")  # last update, start
_INT64 = struct.Struct(">q")


def encode_key(transactional_id: str) -> bytes:
    return pack_int16(KEY_VERSION) + legacy_string(transactional_id)


def decode_key(key: bytes | None) -> str | None:
    """The transactional id; None for an unknown kind of record (of a later version)."""
    if key is None or len(key) < 2 or int16(key, 0)[0] != KEY_VERSION:
        return None
    try:
        return legacy_text(key, 2)[0]
    except (IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"transaction log key: {error}") from error


def encode_value(metadata: TransactionMetadata) -> bytes:
    m = metadata
    out = bytearray(
        _HEAD.pack(VALUE_VERSION, m.producer_id, m.producer_epoch, m.timeout_ms, m.state)
    )
    if m.state is TransactionState.EMPTY:
        out += b"\0"
    else:
        topics = _by_topic(m.partitions)
        out += uvarint(len(topics) + 1)
        for topic, partitions in topics.items():
            out += compact_string(topic) + uvarint(len(partitions) + 1)
            out += struct.pack(f">{len(partitions)}i", *partitions) + b"\0"
    out += _TIMES.pack(m.last_update_timestamp_ms, m.start_timestamp_ms)
    tagged = []
    if m.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((PREVIOUS_PRODUCER_ID, _INT64.pack(m.previous_producer_id)))
    if m.next_producer_id != NO_PRODUCER_ID:
        tagged.append((NEXT_PRODUCER_ID, _INT64.pack(m.next_producer_id)))
    if m.client_transaction_version:
        tagged.append((CLIENT_TRANSACTION_VERSION, pack_int16(m.client_transaction_version)))
    if m.last_producer_epoch != NO_EPOCH:
        tagged.append((LAST_PRODUCER_EPOCH, pack_int16(m.last_producer_epoch)))
    out += uvarint(len(tagged))
    for tag, data in tagged:
        out += uvarint(tag) + uvarint(len(data)) + data
    return bytes(out)


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """DecodeError if this is not a value of a known version."""
    try:
        return _decode(transactional_id, value)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise DecodeError(f"transaction log value: {error}") from error


def _decode(transactional_id: str, value: bytes) -> TransactionMetadata:
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    if not 0 <= version <= VALUE_VERSION:
        raise DecodeError(f"transaction log value: unknown version {version}")
    flexible = version > 0
    partitions, at = _partitions(value, _HEAD.size, flexible)
    last_update, start = _TIMES.unpack_from(value, at)
    numbers: dict[int, int] = {}
    if flexible:
        for tag, begin, end in tagged_fields(value, at + _TIMES.size)[0]:
            numbers[tag] = int.from_bytes(value[begin:end], "big", signed=True)
    return TransactionMetadata(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        TransactionState(state),
        frozenset(partitions),
        start,
        last_update,
        numbers.get(PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        numbers.get(NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        numbers.get(LAST_PRODUCER_EPOCH, NO_EPOCH),
        numbers.get(CLIENT_TRANSACTION_VERSION, 0),
    )


def _partitions(value: bytes, at: int, flexible: bool) -> tuple[list[TopicPartition], int]:
    count = _compact_count if flexible else _legacy_count
    text = compact_text if flexible else legacy_text
    found: list[TopicPartition] = []
    topics, at = count(value, at)
    for _ in range(topics):
        topic, at = text(value, at)
        indexes, at = count(value, at)
        for _ in range(indexes):
            found.append(TopicPartition(topic, int32(value, at)[0]))
            at += 4
        if flexible:
            at = skip_tagged_fields(value, at)
    return found, at


Count = Callable[[bytes, int], tuple[int, int]]


def _compact_count(value: bytes, at: int) -> tuple[int, int]:
    count, at = read_uvarint(value, at)
    return _checked(count - 1, value, at)


def _legacy_count(value: bytes, at: int) -> tuple[int, int]:
    return _checked(int32(value, at)[0], value, at + 4)


def _checked(count: int, value: bytes, at: int) -> tuple[int, int]:
    if count > len(value) - at:
        raise bad_count(count)
    return max(count, 0), at


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return topics
