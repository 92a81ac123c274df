"""Control records of the metadata log as bytes: Kafka's own encoding, so that its tools read it.

    key     version i16 (0), type i16: 2 leader change, 3 snapshot header, 4 snapshot footer,
            5 KRaft version, 6 voters
    value   version i16 (0), then the fields in the protocol's flexible encoding

Example, leader 1 elected by voter 1 alone: key 00000002, value 0000 00000001 02 00000001 00
02 00000001 00 00 (version; leader; one voter, no tags; one granting voter, no tags; no tags).
Called when batches are written, and when fetched or stored batches are parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple
from uuid import UUID

from odradek_broker.raft.values import (
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    RaftEndpoint,
    ReplicaKey,
    Voters,
)
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_protocol.errors import DecodeError
from odradek_protocol.primitives import compact_string, compact_text, skip_tagged_fields
from odradek_protocol.records import control_records as types
from odradek_protocol.records.control_records import control_key, control_type_of
from odradek_protocol.records.records import Record, build_batch, read_records
from odradek_protocol.varint import Buffer, read_uvarint, uvarint

_VERSION = b"\0\0"
_NO_TAGS = b"\0"
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_PORT = Struct(">H")
_FEATURE = Struct(">hh")


class SnapshotHeader(NamedTuple):
    """The first record of a snapshot file."""

    last_contained_log_timestamp: int


class SnapshotFooter(NamedTuple):
    """The last record of a snapshot file; a file without it is incomplete."""


AnyControlRecord = ControlRecord | SnapshotHeader | SnapshotFooter


def build_control_batch(
    records: Sequence[AnyControlRecord], base_offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    encoded = []
    for offset, record in enumerate(records, base_offset):
        control_type, value = _encode(record)
        encoded.append(Record(offset, timestamp_ms, control_key(control_type), value))
    return build_batch(encoded, leader_epoch=epoch, control=True)


def read_control_batch(batch: Buffer) -> tuple[AnyControlRecord, ...]:
    """DecodeError for a control record that this version does not know: it must not be skipped."""
    return tuple(_decode(record) for record in read_records(batch))


def _encode(record: AnyControlRecord) -> tuple[int, bytes]:
    match record:
        case LeaderChange(leader_id, voters, granting_voters):
            value = _VERSION + _INT32.pack(leader_id) + _ids(voters) + _ids(granting_voters)
            return types.LEADER_CHANGE, value + _NO_TAGS
        case KRaftVersion(version):
            return types.KRAFT_VERSION, _VERSION + _INT16.pack(version) + _NO_TAGS
        case Voters(voters_):
            value = _VERSION + uvarint(len(voters_) + 1) + b"".join(map(_voter, voters_.voters))
            return types.KRAFT_VOTERS, value + _NO_TAGS
        case SnapshotHeader(timestamp_ms):
            return types.SNAPSHOT_HEADER, _VERSION + _INT64.pack(timestamp_ms) + _NO_TAGS
        case SnapshotFooter():
            return types.SNAPSHOT_FOOTER, _VERSION + _NO_TAGS


def _ids(node_ids: Sequence[int]) -> bytes:
    return uvarint(len(node_ids) + 1) + b"".join(_INT32.pack(i) + _NO_TAGS for i in node_ids)


def _voter(voter: Voter) -> bytes:
    out = bytearray(_INT32.pack(voter.key.id) + voter.key.directory_id.bytes)
    out += uvarint(len(voter.endpoints) + 1)
    for listener, host, port in voter.endpoints:
        out += compact_string(listener) + compact_string(host) + _PORT.pack(port) + _NO_TAGS
    out += _FEATURE.pack(voter.kraft_version_min, voter.kraft_version_max) + _NO_TAGS
    return bytes(out + _NO_TAGS)


def _decode(record: Record) -> AnyControlRecord:
    control_type = control_type_of(record.key)
    data = memoryview(record.value or b"")
    try:
        if _INT16.unpack_from(data)[0] != 0:
            raise DecodeError(f"control record of type {control_type}: unknown version")
        return _decode_value(control_type, data)
    except (error, IndexError, UnicodeDecodeError, ValueError) as e:
        raise DecodeError(f"control record of type {control_type}: {e}") from None


def _decode_value(control_type: int, data: memoryview) -> AnyControlRecord:
    if control_type == types.LEADER_CHANGE:
        voters, at = _read_ids(data, 6)
        granting_voters, at = _read_ids(data, at)
        return LeaderChange(_INT32.unpack_from(data, 2)[0], voters, granting_voters)
    if control_type == types.KRAFT_VERSION:
        return KRaftVersion(_INT16.unpack_from(data, 2)[0])
    if control_type == types.KRAFT_VOTERS:
        return Voters(_read_voters(data))
    if control_type == types.SNAPSHOT_HEADER:
        return SnapshotHeader(_INT64.unpack_from(data, 2)[0])
    if control_type == types.SNAPSHOT_FOOTER:
        return SnapshotFooter()
    raise DecodeError("not a control record of the metadata log")


def _read_ids(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    count, at = read_uvarint(data, at)
    found = []
    for _ in range(count - 1):
        found.append(_INT32.unpack_from(data, at)[0])
        at = skip_tagged_fields(data, at + 4)
    return tuple(found), at


def _read_voters(data: memoryview) -> VoterSet:
    count, at = read_uvarint(data, 2)
    voters = []
    for _ in range(count - 1):
        (node_id,) = _INT32.unpack_from(data, at)
        directory_id = UUID(bytes=bytes(data[at + 4 : at + 20]))
        endpoints = []
        endpoint_count, at = read_uvarint(data, at + 20)
        for _ in range(endpoint_count - 1):
            listener, at = compact_text(data, at)
            host, at = compact_text(data, at)
            endpoints.append(RaftEndpoint(listener, host, _PORT.unpack_from(data, at)[0]))
            at = skip_tagged_fields(data, at + 2)
        kraft_version_min, kraft_version_max = _FEATURE.unpack_from(data, at)
        at = skip_tagged_fields(data, skip_tagged_fields(data, at + 4))
        key = ReplicaKey(node_id, directory_id)
        voters.append(Voter(key, tuple(endpoints), kraft_version_min, kraft_version_max))
    return VoterSet(tuple(voters))
