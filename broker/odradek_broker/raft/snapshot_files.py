"""Snapshot files of the metadata log: Kafka's checkpoint format and names.

    00000000000000000120-0000000007.checkpoint     everything below offset 120, whose last
                                                   record was written in epoch 7
    00000000000000000000-0000000000.checkpoint     the voters that a disk was formatted with

The content is a sequence of record batches, offsets counted from 0 within the file:

    control batch   SnapshotHeader, KRaftVersion, Voters
    batches         metadata records, about 1 MB each
    control batch   SnapshotFooter: a file without it is incomplete

A file gets its name only when it is complete and durable; until then it ends in `.part`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crc32c import crc32c

from odradek_broker.raft.control_codec import (
    AnyControlRecord,
    SnapshotFooter,
    SnapshotHeader,
    build_control_batch,
    read_control_batch,
)
from odradek_broker.raft.values import KRAFT_VERSION, KRaftVersion, OffsetAndEpoch, Voters
from odradek_broker.raft.voters import VoterSet
from odradek_protocol.errors import DecodeError
from odradek_protocol.records.record_batch import CRC_FROM, HEADER_BYTES, BatchHeader, read_header
from odradek_protocol.records.records import Record, build_batch, read_records
from odradek_protocol.varint import Buffer

CHECKPOINT = ".checkpoint"
PART = ".part"
FORMATTED = OffsetAndEpoch(0, 0)
BATCH_BYTES = 1 << 20  # so that a reader needs little memory at a time

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotError(Exception):
    """The file is not a complete snapshot."""


def checkpoint_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{CHECKPOINT}"


def parse_checkpoint_name(name: str) -> OffsetAndEpoch | None:
    match = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


def encode_snapshot(
    snapshot_id: OffsetAndEpoch, voters: VoterSet, records: Iterable[bytes], timestamp_ms: int
) -> bytes:
    """The whole file; `timestamp_ms` is that of the last record that it covers."""
    epoch = snapshot_id.epoch
    head = (SnapshotHeader(timestamp_ms), KRaftVersion(KRAFT_VERSION), Voters(voters))
    out = bytearray(build_control_batch(head, 0, epoch, timestamp_ms))
    offset = len(head)
    for values in _in_batches(records):
        batch = [Record(offset + i, timestamp_ms, None, value) for i, value in enumerate(values)]
        out += build_batch(batch, leader_epoch=epoch)
        offset += len(batch)
    out += build_control_batch((SnapshotFooter(),), offset, epoch, timestamp_ms)
    return bytes(out)


def _in_batches(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    values: list[bytes] = []
    size = 0
    for value in records:
        if values and size + len(value) > BATCH_BYTES:
            yield values
            values, size = [], 0
        values.append(value)
        size += len(value)
    if values:
        yield values


def read_voters(data: Buffer) -> VoterSet:
    """The voters in the header of a snapshot. SnapshotError if the file is incomplete."""
    voters = VoterSet()
    controls: list[AnyControlRecord] = []
    for header, batch in _batches(data):
        if header.is_control:
            controls += _control(batch)
    if not controls or not isinstance(controls[-1], SnapshotFooter):
        raise SnapshotError("the footer is missing")
    if not isinstance(controls[0], SnapshotHeader):
        raise SnapshotError("the header is missing")
    for control in controls:
        if isinstance(control, Voters):
            voters = control.voters
    return voters


def read_metadata_records(data: Buffer) -> Iterator[bytes]:
    """The metadata records of a snapshot, still encoded."""
    for header, batch in _batches(data):
        if not header.is_control:
            for record in read_records(batch):
                yield record.value or b""


def _batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    view = memoryview(data)
    at = 0
    while at < len(view):
        if len(view) - at < HEADER_BYTES:
            raise SnapshotError(f"the file ends inside the batch at byte {at}")
        header = read_header(view, at)
        batch = view[at : at + header.size]
        if not HEADER_BYTES <= header.size <= len(batch):
            raise SnapshotError(f"the file ends inside the batch at byte {at}")
        if crc32c(batch[CRC_FROM:]) != header.crc:
            raise SnapshotError(f"the CRC of the batch at byte {at} does not match")
        yield header, batch
        at += header.size


def _control(batch: memoryview) -> tuple[AnyControlRecord, ...]:
    try:
        return read_control_batch(batch)
    except DecodeError as error:
        raise SnapshotError(str(error)) from error
