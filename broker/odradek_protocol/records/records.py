"""Records inside a batch of format v2: read them, build batches, rebuild a batch with fewer.

The hot path of the broker does not decode records. The cleaner, the coordinators, the metadata
log and the CLI need them:

    record   length varint, attributes i8 (0), timestamp_delta varlong, offset_delta varint,
             key length varint (-1: null), key, value length varint (-1: null), value,
             header count varint, per header: key length varint, key, value length varint, value
    example  0e 00 00 00 01 02 61 00: 7 bytes, deltas 0, key null, value "a", no headers

`RecordView` points into the uncompressed records of a batch, so that the cleaner can copy the
records it keeps without decoding them further.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek_protocol.errors import DecodeError
from odradek_protocol.records import compression
from odradek_protocol.records.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from odradek_protocol.varint import Buffer, read_varint, read_varlong, write_varint

NO_TIMESTAMP: Final = -1
MAGIC: Final = 2

Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    """One decoded record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class RecordView(NamedTuple):
    """The place of a record in the uncompressed records of its batch, and its key."""

    start: int  # of the length varint
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value_at: int  # where the value starts
    value_length: int  # -1: null, a tombstone


def uncompressed_records(
    batch: Buffer, header: BatchHeader, limit: int = compression.DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The records of a batch as plain bytes. DecompressionError if they are damaged."""
    data = memoryview(batch)[HEADER_BYTES : header.size]
    codec = header.attributes & CODEC_MASK
    return compression.decompress(codec, data, limit) if codec else data


def view_records(data: Buffer, count: int) -> Iterator[RecordView]:
    """The `count` records in `data`; DecodeError unless they fill it exactly.

    The cleaner's inner loop: a varint of one byte, the common case, is read without a call.
    """
    records = data if isinstance(data, bytes) else bytes(data)
    return _views(records, count)


def _views(data: bytes, count: int) -> Iterator[RecordView]:
    at = 0
    try:
        for _ in range(count):
            start = at
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise DecodeError(f"record of {length} bytes in {len(data) - at} bytes")
            timestamp_delta, at = read_varlong(data, at + 1)
            raw = data[at]
            if raw < 0x80:
                offset_delta = (raw >> 1) ^ -(raw & 1)
                at += 1
            else:
                offset_delta, at = read_varint(data, at)
            raw = data[at]
            if raw < 0x80:
                key_length = (raw >> 1) ^ -(raw & 1)
                at += 1
            else:
                key_length, at = read_varint(data, at)
            key = None
            if key_length >= 0:
                key = data[at : at + key_length]
                at += key_length
            value_length, at = read_varint(data, at)
            if at + max(value_length, 0) > end:
                raise DecodeError("key or value longer than the record")
            yield RecordView(start, end, timestamp_delta, offset_delta, key, at, value_length)
            at = end
    except IndexError:
        raise DecodeError("record cut short") from None
    if at != len(data):
        raise DecodeError(f"{len(data) - at} bytes after the last record")


def check_record(data: bytes, at: int, limit: int) -> tuple[int, int, int]:
    """(end, timestamp_delta, offset_delta) of the record at byte `at`, which ends before `limit`.

    DecodeError or IndexError unless all its parts, down to the headers, fill its length.
    """
    length, at = read_varint(data, at)
    end = at + length
    if length < 0 or end > limit:
        raise DecodeError(f"record of {length} bytes in {limit - at} bytes")
    timestamp_delta, at = read_varlong(data, at + 1)
    offset_delta, at = read_varint(data, at)
    length, at = read_varint(data, at)  # key
    if length > 0:
        at += length
    length, at = read_varint(data, at)  # value
    if length > 0:
        at += length
    count, at = read_varint(data, at)
    if not 0 <= count <= max(end - at, 0):
        raise DecodeError(f"{count} headers in {end - at} bytes")
    for _ in range(count):
        length, at = read_varint(data, at)
        if length < 0:
            raise DecodeError("null header key")
        length, at = read_varint(data, at + length)
        if length > 0:
            at += length
    if at != end:
        raise DecodeError("record does not have the length it claims")
    return end, timestamp_delta, offset_delta


def read_records(
    batch: Buffer, limit: int = compression.DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of one batch, decoded. DecodeError if they do not match the batch header."""
    header = read_header(batch)
    data = bytes(uncompressed_records(batch, header, limit))
    append_time = header.attributes & TIMESTAMP_TYPE_BIT
    for view in view_records(data, header.record_count):
        timestamp = header.base_timestamp + view.timestamp_delta
        value, headers = _value_and_headers(data, view)
        yield Record(
            header.base_offset + view.offset_delta,
            header.max_timestamp if append_time else timestamp,
            view.key,
            value,
            headers,
        )


def _value_and_headers(data: bytes, view: RecordView) -> tuple[bytes | None, list[Header]]:
    at = view.value_at
    value = None
    if view.value_length >= 0:
        value = data[at : at + view.value_length]
        at += view.value_length
    headers: list[Header] = []
    try:
        count, at = read_varint(data, at)
        if not 0 <= count <= view.end - at:
            raise DecodeError(f"{count} headers in {view.end - at} bytes")
        for _ in range(count):
            key, at = _nullable_bytes(data, at)
            if key is None:
                raise DecodeError("null header key")
            header_value, at = _nullable_bytes(data, at)
            headers.append((key, header_value))
    except IndexError:
        raise DecodeError("record cut short") from None
    if at != view.end:
        raise DecodeError("record does not have the length it claims")
    return value, headers


def _nullable_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise DecodeError(f"field of {length} bytes in {len(data) - at} bytes")
    return data[at : at + length], at + length


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[Header] = (),
) -> None:
    """Append one record to `out`."""
    body = bytearray(1)  # attributes
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    for data in (key, value):
        _write_nullable(body, data)
    headers = tuple(headers)
    write_varint(body, len(headers))
    for header_key, header_value in headers:
        _write_nullable(body, header_key)
        _write_nullable(body, header_value)
    write_varint(out, len(body))
    out += body


def _write_nullable(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


class BatchProducer(NamedTuple):
    """The producer fields of a batch header; -1 where a batch has none."""

    id: int
    epoch: int
    base_sequence: int = -1  # brokers write without sequence numbers


NO_PRODUCER: Final = BatchProducer(-1, -1, -1)


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = compression.NONE,
    producer: BatchProducer = NO_PRODUCER,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A batch of `records`, whose offsets ascend; the first one's is the base offset."""
    base_offset = records[0].offset
    base_timestamp = records[0].timestamp
    data = bytearray()
    for offset, timestamp, key, value, headers in records:
        encode_record(data, offset - base_offset, timestamp - base_timestamp, key, value, headers)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | transactional * TRANSACTIONAL_BIT | control * CONTROL_BIT,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        record_count=len(records),
    )
    return seal_batch(header, data)


def seal_batch(header: BatchHeader, data: Buffer, level: int | None = None) -> bytes:
    """A batch of this header and these uncompressed records, with its length and CRC.

    The records are compressed with the codec in the header's attributes.
    """
    body = compression.compress(header.attributes & CODEC_MASK, data, level)
    length = HEADER_BYTES - LOG_OVERHEAD + len(body)
    batch = bytearray(HEADER.pack(*header.replace(batch_length=length).fields))
    batch += body
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def retain_records(
    header: BatchHeader,
    data: Buffer,
    kept: Sequence[RecordView],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """The batch with only the records `kept` of those in `data`; empty if there are none.

    Offsets, sequence numbers, producer and leader epoch stay those of the original, so that
    producer state rebuilt from the log is the same. With `delete_horizon_ms` the batch also stores
    when its tombstones may be removed. That time replaces the base timestamp, so the records are
    encoded again with deltas from it.
    """
    if not kept:
        return seal_batch(
            header.replace(
                attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
                base_timestamp=NO_TIMESTAMP,
                record_count=0,
            ),
            b"",
        )
    if not header.attributes & TIMESTAMP_TYPE_BIT:
        latest = header.base_timestamp + max(view.timestamp_delta for view in kept)
        header = header.replace(max_timestamp=latest)
    header = header.replace(record_count=len(kept))
    data = memoryview(data)
    out = bytearray()
    if delete_horizon_ms is None:
        for view in kept:
            out += data[view.start : view.end]
        return seal_batch(header, out, level)
    shift = header.base_timestamp - delete_horizon_ms
    plain = bytes(data)
    for view in kept:
        value, headers = _value_and_headers(plain, view)
        encode_record(
            out, view.offset_delta, view.timestamp_delta + shift, view.key, value, headers
        )
    header = header.replace(
        attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=delete_horizon_ms
    )
    return seal_batch(header, out, level)


def renumber_records(data: Buffer, count: int) -> Buffer:
    """The records with offset deltas 0, 1, 2, …; `data` itself if they have them already."""
    views = list(view_records(data, count))
    if all(view.offset_delta == index for index, view in enumerate(views)):
        return data
    plain = bytes(data)
    out = bytearray()
    for index, view in enumerate(views):
        value, headers = _value_and_headers(plain, view)
        encode_record(out, index, view.timestamp_delta, view.key, value, headers)
    return out
