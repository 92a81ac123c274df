"""The file of a producer state: `%020d.snapshot`, named by the offset that it covers up to.

Big-endian: `version: int16 (1), crc: uint32, count: int32`, then per producer 46 bytes:
`producer_id int64, producer_epoch int16, last_sequence int32, last_offset int64,
offset_delta int32, timestamp int64, coordinator_epoch int32, txn_first_offset int64`.
The CRC32C covers everything from the count on. Only the newest of the last batches is stored.

Example: a state without producers is the 10 bytes 0001 <crc> 00000000.
"""

from struct import Struct, error

from crc32c import crc32c

from odradek_broker.log.producer_state import (
    NO_OFFSET,
    NO_SEQUENCE,
    ProducerBatch,
    ProducerEntry,
    ProducerState,
)
from odradek_protocol.ids import Offset, ProducerId

VERSION = 1
_PREFIX = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """The snapshot is damaged; an older one or the log itself is used instead."""


def encode_snapshot(entries: dict[ProducerId, ProducerEntry]) -> bytes:
    parts = [_COUNT.pack(len(entries))]
    for producer_id, entry in entries.items():
        last = entry.batches[-1] if entry.batches else ProducerBatch(NO_SEQUENCE, NO_OFFSET, 0, 0)
        parts.append(
            _ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        )
    body = b"".join(parts)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> dict[ProducerId, ProducerEntry]:
    try:
        version, crc = _PREFIX.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    except error as problem:
        raise CorruptSnapshotError("too short") from problem
    if version != VERSION:
        raise CorruptSnapshotError(f"version {version}")
    if crc32c(data[_PREFIX.size :]) != crc:
        raise CorruptSnapshotError("CRC does not match")
    start = _PREFIX.size + _COUNT.size
    if count < 0 or len(data) - start != count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries in {len(data)} bytes")
    entries = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[start:]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
        entry = ProducerEntry(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = first
        if offset >= 0:
            entry.batches.append(ProducerBatch(sequence, offset, delta, timestamp))
        entries[producer_id] = entry
    return entries


def state_from_snapshot(data: bytes, offset: Offset) -> ProducerState:
    state = ProducerState(offset)
    state.entries = decode_snapshot(data)
    open_transactions = (
        (entry.txn_first_offset, producer_id)
        for producer_id, entry in state.entries.items()
        if entry.txn_first_offset >= 0
    )
    state.ongoing = dict(sorted(open_transactions))
    return state
