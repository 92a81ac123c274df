"""The records of a batch as columns: the cleaner's inner loop.

The cleaner reads every record of a log but needs only its key, its offset and whether it is a
tombstone. One pass over the bytes returns these as plain lists, without an object per record (about
4 times as fast as `records.view_records`); records that stay are copied unchanged.

    record   length varint, attributes i8, timestamp_delta varlong, offset_delta varint,
             key length varint (1 is -1: null), key, value length varint (1: null), …
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek_protocol.errors import DecodeError
from odradek_protocol.records.record_batch import (
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from odradek_protocol.records.records import seal_batch
from odradek_protocol.varint import read_uvarint, read_varint, read_varlong, write_varint

_NULL = 1  # a varint of -1


class RecordColumns(NamedTuple):
    """Record n is data[starts[n] : starts[n + 1]]."""

    starts: list[int]  # one more than records: the last is the end of the data
    offset_deltas: list[int]
    keys: list[bytes | None]
    tombstones: list[bool]


def read_columns(data: bytes, count: int) -> RecordColumns:
    """The `count` records in `data`; DecodeError unless they fill it exactly.

    Varints of one or two bytes, nearly all of them, are read without a call.
    """
    starts, offset_deltas, tombstones = [0], [], []
    keys: list[bytes | None] = []
    at = 0
    try:
        for _ in range(count):
            raw = data[at]
            at += 1
            if raw > 0x7F:
                high = data[at]
                if high < 0x80:
                    raw = raw & 0x7F | high << 7
                    at += 1
                else:
                    raw, at = read_uvarint(data, at - 1)
            end = at + (raw >> 1)
            if raw & 1:
                raise DecodeError("record of negative length")
            at += 1
            while data[at] > 0x7F:  # the timestamp delta
                at += 1
            raw = data[at + 1]
            at += 2
            if raw > 0x7F:
                high = data[at]
                if high < 0x80:
                    raw = raw & 0x7F | high << 7
                    at += 1
                else:
                    raw, at = read_uvarint(data, at - 1)
            if raw & 1:
                raise DecodeError("negative offset delta")
            offset_deltas.append(raw >> 1)
            raw = data[at]
            at += 1
            if raw == _NULL:
                keys.append(None)
            else:
                if raw > 0x7F:
                    raw, at = read_uvarint(data, at - 1)
                key_end = at + (raw >> 1)
                if raw & 1 or key_end >= end:
                    raise DecodeError("key longer than its record")
                keys.append(data[at:key_end])
                at = key_end
            tombstones.append(data[at] == _NULL)
            at = end
            starts.append(end)
    except IndexError:
        raise DecodeError("record cut short") from None
    if at != len(data):
        raise DecodeError(f"the records end at byte {at} of {len(data)}")
    return RecordColumns(starts, offset_deltas, keys, tombstones)


def keep_records(
    header: BatchHeader,
    data: bytes,
    starts: Sequence[int],
    kept: Sequence[int],
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch with only the records whose numbers are in `kept` (at least one).

    Offsets, sequence numbers and leader epoch stay those of the original. A delete horizon
    replaces the base timestamp, so the records get new timestamp deltas with it.
    """
    new_base = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    shift = header.base_timestamp - new_base
    largest_delta = None
    out = bytearray()
    for number in kept:
        start, end = starts[number], starts[number + 1]
        _, body = read_varint(data, start)
        delta, rest = read_varlong(data, body + 1)
        delta += shift
        if largest_delta is None or delta > largest_delta:
            largest_delta = delta
        if shift:
            new_body = bytearray(data[body : body + 1])
            write_varint(new_body, delta)
            write_varint(out, len(new_body) + end - rest)
            out += new_body
            out += data[rest:end]
        else:
            out += data[start:end]
    assert largest_delta is not None
    if not header.attributes & TIMESTAMP_TYPE_BIT:
        header = header.replace(max_timestamp=new_base + largest_delta)
    if delete_horizon_ms is not None:
        header = header.replace(attributes=header.attributes | DELETE_HORIZON_BIT)
    return seal_batch(header.replace(base_timestamp=new_base, record_count=len(kept)), out)
