"""The checks of a record batch before the leader appends it.

Called by `Appender`. The checks run from cheap to expensive and answer with the error codes of
Apache Kafka 4.3 (compared by sending the same batches to both):

    CORRUPT_MESSAGE    lengths, magic byte or CRC32C do not fit
    MESSAGE_TOO_LARGE  more than max.message.bytes
    INVALID_RECORD     not exactly one batch of magic 2 with base offset 0; counts and offsets
                       that disagree; a control batch from a client; records whose lengths do
                       not add up to the batch; a null key in a compacted topic
    INVALID_TIMESTAMP  outside message.timestamp.before/after.max.ms

Records are not decoded: a walk over their lengths (`record_walk.py`) proves that there are as many
as the header says and that they end where the batch ends. Example: a batch of 81 bytes with a
record_count of 2 must have two records in its last 20 bytes.

A batch that passes is appended as it came, with three exceptions:
`message.timestamp.type=LogAppendTime` or a wrong max_timestamp (a copy gets another header), a
`compression.type` other than the batch's, or offset deltas that are not 0, 1, 2, … (both: the
batch is built again).
"""

from struct import Struct
from typing import Final

from crc32c import crc32c
from librt.strings import read_i32_be

from odradek_broker.log.record_walk import walk_records
from odradek_broker.model.log_config import LONG_MAX, LogConfig, TimestampType
from odradek_protocol.byte_range import ByteRange, whole
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.records import compression
from odradek_protocol.records.compression import DecompressedTooLargeError
from odradek_protocol.records.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CRC_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_AT,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    read_header,
)
from odradek_protocol.records.records import (
    NO_TIMESTAMP,
    renumber_records,
    seal_batch,
    uncompressed_records,
    view_records,
)
from odradek_protocol.varint import Buffer

MAGIC: Final = 2
SMALLEST_BATCH_LENGTH: Final = 14  # of the oldest format; no format has a shorter batch
APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME  # cached: looking up an enum member is slow
RECORD_ERRORS_MAX: Final = 100  # bounds the response

TARGET_CODECS: Final = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}

_crc_attributes: Final = Struct(">Ih").pack_into
_max_timestamp: Final = Struct(">q").pack_into
MAX_TIMESTAMP_AT: Final = 35


class RecordsRejectedError(KafkaError):
    """Some records are invalid: `record_errors` has their index in the batch and the reason."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Validated:
    __slots__ = ("headers", "log_append_time_ms", "records")

    def __init__(
        self, records: ByteRange, headers: list[BatchHeader], log_append_time_ms: int
    ) -> None:
        self.records = records  # what to append: the given bytes, or a batch built from them
        self.headers = headers
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime


def validate_for_append(
    records: ByteRange, config: LogConfig, now_ms: int, *, from_client: bool = True
) -> Validated:
    """Check the batches of one partition of a produce request; raises KafkaError.

    With `from_client=False` the batches are the broker's own and their contents are trusted.
    """
    if not from_client:
        return _validate_own(records, config, now_ms)
    header = only_batch(records)
    size = header.size
    if header.base_offset != 0:
        raise _invalid(f"base offset {header.base_offset} instead of 0")
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"batch of {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    batch = records.part(0, size)  # the rest is not a whole batch: dropped, as Kafka does
    if size < HEADER_BYTES or crc32c(batch.from_byte(CRC_FROM)) != header.crc:
        raise KafkaError(ErrorCode.corrupt_message, "CRC does not match")
    _check_header(header)
    try:
        return _check_records(batch, header, config, now_ms)
    except DecompressedTooLargeError as e:
        raise KafkaError(ErrorCode.message_too_large, f"decompressed: {e}") from None
    except DecodeError as e:
        raise _invalid(str(e)) from None


def validate_for_replica(records: Buffer) -> list[BatchHeader]:
    """The headers of the batches that a follower got from its leader; raises KafkaError.

    Checks lengths, magic, CRC and ascending offsets, but not the size: the leader has done that.
    """
    view = memoryview(records)
    headers = []
    at = 0
    last_offset = -1
    while at < len(view):
        header = _header_in(view, at)
        if header is None or header.size < HEADER_BYTES or header.magic != MAGIC:
            raise KafkaError(ErrorCode.corrupt_message, f"no batch at byte {at}")
        if crc32c(view[at + CRC_FROM : at + header.size]) != header.crc:
            raise KafkaError(ErrorCode.corrupt_message, f"CRC does not match at byte {at}")
        if header.base_offset <= last_offset or header.last_offset_delta < 0:
            raise KafkaError(ErrorCode.corrupt_message, f"offsets do not ascend at byte {at}")
        last_offset = header.last_offset
        headers.append(header)
        at += header.size
    return headers


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)


def _header_in(view: memoryview, at: int) -> BatchHeader | None:
    """As `_header_at`, for a view: only the header is copied into `bytes`."""
    return _header_at(bytes(view[at : at + HEADER_BYTES]), 0, len(view) - at)


def _header_at(data: bytes, at: int, remaining: int) -> BatchHeader | None:
    """The header of the batch at byte `at`, if the `remaining` bytes hold a whole one."""
    if remaining < LOG_OVERHEAD:
        return None
    length: int = read_i32_be(data, at + 8)
    if length < SMALLEST_BATCH_LENGTH:
        raise KafkaError(ErrorCode.corrupt_message, f"batch length {length}")
    if remaining <= MAGIC_AT:
        return None
    if data[at + MAGIC_AT] > MAGIC:
        raise KafkaError(ErrorCode.corrupt_message, f"magic {data[at + MAGIC_AT]}")
    if remaining < LOG_OVERHEAD + length:
        return None
    if remaining < HEADER_BYTES:  # complete, but too short for a header: the CRC check fails
        return read_header(data[at : at + remaining] + bytes(HEADER_BYTES))
    return read_header(data, at)


def only_batch(records: ByteRange) -> BatchHeader:
    data, start, size = records.data, records.start, len(records)
    header = _header_at(data, start, size)
    if header is None:
        raise _invalid("a produce request must have one record batch per partition")
    if header.magic != MAGIC:
        raise _invalid(f"record format {header.magic}, only format 2 is accepted")
    if _header_at(data, start + header.size, size - header.size) is not None:
        raise _invalid("more than one record batch for a partition")
    return header


def _check_header(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(f"{count} records with last offset delta {header.last_offset_delta}")
    if header.attributes & CONTROL_BIT:
        raise _invalid("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"sequence {header.base_sequence} of producer {header.producer_id}")
    if header.attributes & CODEC_MASK > compression.ZSTD:
        raise _invalid(f"unknown codec {header.attributes & CODEC_MASK}")


def _check_records(
    batch: ByteRange, header: BatchHeader, config: LogConfig, now_ms: int
) -> Validated:
    codec = header.attributes & CODEC_MASK
    if codec:
        records = whole(uncompressed_records(batch.from_byte(0), header))
    else:
        records = ByteRange(batch.data, batch.start + HEADER_BYTES, batch.end)
    first_delta, last_delta, offsets_fit = walk_records(records, header.record_count)
    if config.cleanup_compact:
        _check_keys(records.from_byte(0), header.record_count)
    log_append_time_ms = -1
    if config.timestamp_type is APPEND_TIME:
        if header.attributes & TIMESTAMP_TYPE_BIT:
            raise _rejected_timestamp([(0, "a producer may not send LogAppendTime")])
        max_timestamp = log_append_time_ms = now_ms
    else:
        lowest, highest = min(first_delta, last_delta), max(first_delta, last_delta)
        max_timestamp = _check_timestamps(records, header, lowest, highest, config, now_ms)
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if log_append_time_ms >= 0:
        attributes |= TIMESTAMP_TYPE_BIT
    target = TARGET_CODECS.get(config.compression_type, codec)  # "producer": unchanged
    if target != codec or not offsets_fit:
        attributes = attributes & ~CODEC_MASK | target
        header = header.replace(attributes=attributes, max_timestamp=max_timestamp)
        return _rewritten(header, records.from_byte(0), config, log_append_time_ms)
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        patched = bytearray(batch.from_byte(0))
        header = _patch(memoryview(patched), header, attributes, max_timestamp)
        batch = whole(patched)
    return Validated(batch, [header], log_append_time_ms)


def _check_keys(data: Buffer, count: int) -> None:
    errors = [
        (index, "a compacted topic does not accept a record without a key")
        for index, view in enumerate(view_records(data, count))
        if view.key is None
    ]
    if errors:
        raise RecordsRejectedError(
            ErrorCode.invalid_record,
            f"{len(errors)} records without a key in a compacted topic",
            errors[:RECORD_ERRORS_MAX],
        )


def _check_timestamps(
    records: ByteRange,
    header: BatchHeader,
    lowest_delta: int,
    highest_delta: int,
    config: LogConfig,
    now_ms: int,
) -> int:
    """The largest timestamp of the batch; raises KafkaError unless all are acceptable.

    A max_timestamp that is the first or the last record's is trusted: every client in use sends
    the right one. Any other is computed from all records, as is the smallest timestamp where a
    topic limits it.
    """
    limited = config.timestamp_before_max_ms != LONG_MAX
    if header.attributes & TIMESTAMP_TYPE_BIT:
        low = high = header.max_timestamp  # readers take this for the timestamp of each record
        if high == NO_TIMESTAMP:
            raise _rejected_timestamp([(0, "a producer may not send LogAppendTime")])
    else:
        base = header.base_timestamp
        low, high = base + lowest_delta, base + highest_delta
        if high != header.max_timestamp or limited:
            views = view_records(records.from_byte(0), header.record_count)
            deltas = [view.timestamp_delta for view in views]
            low, high = base + min(deltas), base + max(deltas)
    if low >= 0 and high - now_ms <= config.timestamp_after_max_ms and not limited:
        return high
    earliest = max(now_ms - config.timestamp_before_max_ms, -LONG_MAX)
    latest = min(now_ms + config.timestamp_after_max_ms, LONG_MAX)
    if low < earliest or latest < high:
        _reject_timestamps(records.from_byte(0), header, earliest, latest)
    return max(high, NO_TIMESTAMP)


def _reject_timestamps(data: Buffer, header: BatchHeader, earliest: int, latest: int) -> None:
    """Raise for the records out of range; a record without a timestamp (-1) is accepted."""
    errors = []
    for index, view in enumerate(view_records(data, header.record_count)):
        timestamp = header.base_timestamp + view.timestamp_delta
        if header.attributes & TIMESTAMP_TYPE_BIT:
            timestamp = header.max_timestamp
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            reason = f"timestamp {timestamp} is not within [{earliest}, {latest}]"
            errors.append((index, reason))
    if errors:
        raise _rejected_timestamp(errors)


def _rejected_timestamp(errors: list[tuple[int, str]]) -> RecordsRejectedError:
    return RecordsRejectedError(
        ErrorCode.invalid_timestamp,
        "One or more records have been rejected due to invalid timestamp",
        errors[:RECORD_ERRORS_MAX],
    )


def _patch(
    batch: memoryview, header: BatchHeader, attributes: int, max_timestamp: int
) -> BatchHeader:
    """Overwrite attributes and max_timestamp in place, and the CRC that covers them."""
    _crc_attributes(batch, CRC_AT, 0, attributes)
    _max_timestamp(batch, MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(batch[CRC_FROM:])
    _crc_attributes(batch, CRC_AT, crc, attributes)
    return header.replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def _rewritten(
    header: BatchHeader, data: Buffer, config: LogConfig, log_append_time_ms: int
) -> Validated:
    """The batch with the codec in its attributes, and the offset deltas 0, 1, 2, …"""
    levels = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(header.attributes & CODEC_MASK)
    batch = bytes(seal_batch(header, renumber_records(data, header.record_count), level))
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"batch of {len(batch)} bytes with compression.type={config.compression_type}, "
            f"max.message.bytes is {config.max_message_bytes}",
        )
    return Validated(whole(batch), [read_header(batch)], log_append_time_ms)


def _validate_own(records: ByteRange, config: LogConfig, now_ms: int) -> Validated:
    headers = []
    at = 0
    append_time = config.timestamp_type is APPEND_TIME
    patched = bytearray(records.from_byte(0) if append_time else b"")
    while at < len(records):
        header = _header_at(records.data, records.start + at, len(records) - at)
        assert header is not None, "the broker built an incomplete batch"
        if header.size > config.max_message_bytes:
            raise KafkaError(ErrorCode.message_too_large, f"batch of {header.size} bytes")
        if append_time:
            attributes = header.attributes | TIMESTAMP_TYPE_BIT
            batch = memoryview(patched)[at : at + header.size]
            header = _patch(batch, header, attributes, now_ms)
        headers.append(header)
        at += header.size
    if append_time:
        return Validated(whole(patched), headers, now_ms)
    return Validated(records, headers, -1)
