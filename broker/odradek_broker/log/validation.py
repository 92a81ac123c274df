"""What a record batch must satisfy before the leader appends it.

Called by `Log.append_as_leader`. Checks run from cheap to dear, and answer with the error
codes of Apache Kafka 4.3 (compared by sending the same batches to both):

    CORRUPT_MESSAGE    lengths, magic byte or CRC32C do not fit
    MESSAGE_TOO_LARGE  more than max.message.bytes
    INVALID_RECORD     not exactly one batch of magic 2 with base offset 0; counts and offsets
                       that disagree; a control batch from a client; records whose lengths do
                       not add up to the batch; a null key in a compacted topic
    INVALID_TIMESTAMP  outside message.timestamp.before/after.max.ms

Records are not decoded: a walk over their length prefixes (0.02 to 0.1 µs each) proves that
there are as many as the header says and that they end where the batch ends. The first and the
last one are looked at closely. A batch that passes is appended as it came, unless one of these
asks for more: `message.timestamp.type=LogAppendTime` (a copy with another header), a wrong
max_timestamp (likewise), a `compression.type` other than the batch's or offsets that are not
0, 1, 2, … (the batch is written anew).
"""

from struct import Struct
from typing import Any, Final

from crc32c import crc32c
from librt.strings import read_i32_be

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
    check_record,
    renumber_records,
    seal_batch,
    uncompressed_records,
    view_records,
)
from odradek_protocol.varint import Buffer, read_varint

MAGIC: Final = 2
SMALLEST_BATCH_LENGTH: Final = 14  # of the oldest format; anything less is no batch of any kind
APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME  # looked up once: an enum's member is dear
RECORD_ERRORS_MAX: Final = 100  # a response stays small, whatever the batch

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
    """Single records are at fault: `record_errors` has their index in the batch and why."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Validated:
    __slots__ = ("headers", "log_append_time_ms", "records")

    def __init__(
        self, records: ByteRange, headers: list[BatchHeader], log_append_time_ms: int
    ) -> None:
        self.records = records  # what to append: the bytes given, or a batch written anew
        self.headers = headers
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime


def validate_for_append(
    records: ByteRange, config: LogConfig, now_ms: int, *, from_client: bool = True
) -> Validated:
    """Check the batches of one partition of a produce request; raises KafkaError.

    With `from_client` false the batches are the broker's own: their contents are trusted.
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
    batch = records.part(0, size)  # what follows is less than a batch, and dropped as Kafka does
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

    Lengths, magic, CRC and rising offsets. The size is not checked: the leader decided that.
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
            raise KafkaError(ErrorCode.corrupt_message, f"offsets do not rise at byte {at}")
        last_offset = header.last_offset
        headers.append(header)
        at += header.size
    return headers


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)


def _header_in(view: memoryview, at: int) -> BatchHeader | None:
    """As `_header_at`, of what is no `bytes` and is not copied to become that."""
    return _header_at(bytes(view[at : at + HEADER_BYTES]), 0, len(view) - at)


def _header_at(data: bytes, at: int, remaining: int) -> BatchHeader | None:
    """The header of the batch at byte `at`, where so many bytes of batches remain; None if they
    are no complete one."""
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
    target = TARGET_CODECS.get(config.compression_type, codec)  # "producer": as it came
    if target != codec or not offsets_fit:
        attributes = attributes & ~CODEC_MASK | target
        header = header.replace(attributes=attributes, max_timestamp=max_timestamp)
        return _rewritten(header, records.from_byte(0), config, log_append_time_ms)
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        patched = bytearray(batch.from_byte(0))
        header = _patch(memoryview(patched), header, attributes, max_timestamp)
        batch = whole(patched)
    return Validated(batch, [header], log_append_time_ms)


RECORD_BYTES_MIN: Final = 6  # attributes, two deltas, two lengths, number of headers: a byte each

# How far the next record is, by the first byte of a record's length: a one-byte length itself
# and the bytes it counts, or the low bits' share of a two-byte one (its second byte then adds
# 64 times itself). Lengths are zigzag-coded, so odd bytes belong to negative ones: those have
# no entry, nor have lengths that are too short for a record.
STEP: list[Any] = [
    None
    if byte & 1 or byte // 2 < RECORD_BYTES_MIN
    else 1 + byte // 2
    if byte < 0x80
    else 2 + (byte & 0x7F) // 2
    for byte in range(256)
]


# Many batches have records of one length in a row: they are stepped over in one go, LOOKAHEAD of
# them at first, ever more as that goes well. Where fewer than RUN_MIN are equal, PACE of them
# are taken one by one, and after RUN_MISSES such disappointments all the rest.
LOOKAHEAD: Final = 32
RUN_MIN: Final = 8
RUN_MISSES: Final = 4
PACE: Final = 16


def walk_records(records: ByteRange, count: int) -> tuple[int, int, bool]:
    """Step over `count` records; DecodeError unless they fill `records` exactly.

    Gives the timestamp deltas of the first and of the last one, and whether their offset deltas
    are 0 and `count` - 1. The inner loop of produce: 0.02 µs a record where lengths repeat, else
    0.06 µs up to 63 bytes and 0.11 µs up to 8 KiB.
    """
    data, at, limit = records.data, records.start, records.end
    # Before a step is made: a count of billions would lead through all that follows in the frame.
    if count * (1 + RECORD_BYTES_MIN) > limit - at:
        raise DecodeError("fewer records than the batch says")
    left = count - 1  # the last one is looked at closely
    misses_left = RUN_MISSES
    lookahead = LOOKAHEAD
    try:
        while left > 0:
            pace = left
            if misses_left and left >= RUN_MIN:
                run, size = _equal_lengths(data, at, min(left, lookahead))
                if run >= RUN_MIN:
                    at += run * size
                    left -= run
                    misses_left = RUN_MISSES
                    lookahead *= 4
                    continue
                misses_left -= 1
                lookahead = LOOKAHEAD
                pace = min(PACE, left)
            at = _step_over(data, at, pace)
            left -= pace
        end, last_timestamp, last_offset = check_record(data, at, limit)
        first_timestamp, first_offset = last_timestamp, last_offset
        if count > 1:
            _, first_timestamp, first_offset = check_record(data, records.start, limit)
    except IndexError:
        raise DecodeError("fewer records than the batch says") from None
    except TypeError:
        raise DecodeError("a record of impossible length") from None
    if end != limit:
        raise DecodeError(f"{limit - end} bytes after the last record")
    return first_timestamp, last_timestamp, first_offset == 0 and last_offset == count - 1


def _step_over(data: bytes, at: int, count: int) -> int:
    """Where the next record is after `count` of them; IndexError or TypeError if there are none."""
    step = STEP
    for _ in range(count):
        low = data[at]
        if low < 0x80:
            at += step[low]
            continue
        high = data[at + 1]
        if 0 < high < 0x80:
            at += step[low] + (high << 6)
        else:
            length, at = read_varint(data, at)
            if length < RECORD_BYTES_MIN:
                raise DecodeError("a record of impossible length")
            at += length
    return at


def _equal_lengths(data: bytes, at: int, count: int) -> tuple[int, int]:
    """How many of `count` records, from byte `at` on, have the first one's length, and their size.

    Looks at every byte that tells a length, as a walk from record to record would. Records
    longer than 8 KiB are few, and those with a length of more bytes than it needs are odd: of
    them it says that there are none.
    """
    low, high = data[at], data[at + 1]
    size = STEP[low]
    if low >= 0x80:
        if not 0 < high < 0x80:
            return 0, 0
        size += high << 6
    end = at + size * count
    lows = data[at:end:size]
    run = len(lows) - len(lows.lstrip(lows[:1]))
    if low >= 0x80:
        highs = data[at + 1 : end : size]
        run = min(run, len(highs) - len(highs.lstrip(highs[:1])))
    return run, size


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
    """The largest timestamp of the batch, once all of them are known to be acceptable.

    A max_timestamp that is the first or the last record's is believed: every client in use
    sends a true one. Any other is worked out from all records, as is the smallest timestamp
    where a topic limits it.
    """
    limited = config.timestamp_before_max_ms != LONG_MAX
    if header.attributes & TIMESTAMP_TYPE_BIT:
        low = high = header.max_timestamp  # what readers of such a batch take for each record
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
    """Raise for the records out of range; one without a timestamp (-1) may pass."""
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
    """The batch with the codec that its attributes name, and offsets 0, 1, 2, …"""
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
        assert header is not None, "the broker built half a batch"
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
