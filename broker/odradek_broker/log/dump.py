"""Read the files of a partition directory for people: `odradek dump-log`, like DumpLogSegments.

Opens files read-only, repairs nothing, needs no broker. Every file becomes rows with Kafka's own
field names; `format_row` returns the line that Kafka's tool prints:

    baseOffset: 0 lastOffset: 2 count: 3 … position: 0 CreateTime: 1700000000000 size: 97 …
    | offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 4 sequence: 0 … payload: v0
    offset: 68 position: 2352

Problems of a file appear between them as rows of kind PROBLEM.
"""

import os
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeAlias

from odradek_broker.log.batches import scan_headers
from odradek_broker.log.control import parse_marker
from odradek_broker.log.errors import CorruptLogError
from odradek_broker.log.file_names import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX
from odradek_broker.log.offset_index import OffsetIndex
from odradek_broker.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from odradek_broker.log.producer_state import last_sequence_of
from odradek_broker.log.time_index import TimeIndex
from odradek_broker.log.txn_index import VERSION, parse
from odradek_broker.runtime.disk import RealFile
from odradek_protocol.errors import DecodeError
from odradek_protocol.records.record_batch import (
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_matches,
)
from odradek_protocol.records.records import Record, read_records

Fields: TypeAlias = dict[str, object]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
_CONTROL_KEY = Struct(">hh")


class RowKind(Enum):
    NOTE = "note"
    BATCH = "batch"
    RECORD = "record"
    ENTRY = "entry"  # of an index or a snapshot
    PROBLEM = "problem"


class Row(NamedTuple):
    kind: RowKind
    fields: Fields  # NOTE and PROBLEM: {"text": …}


class DumpOptions(NamedTuple):
    deep: bool = False  # records, not only batches
    print_data: bool = False  # keys and values too
    sanity_only: bool = False  # indexes: only what decides whether they are rebuilt at start
    verify_only: bool = False  # indexes: only what is wrong


BATCHES_ONLY = DumpOptions()


def dump_file(path: Path, options: DumpOptions = BATCHES_ONLY) -> Iterator[Row]:
    """All rows of one file; OSError if it cannot be read."""
    readers: dict[str, Callable[[Path, DumpOptions], Iterator[Row]]] = {
        LOG: _dump_log,
        ".checkpoint": _dump_log,
        OFFSET_INDEX: _dump_offset_index,
        TIME_INDEX: _dump_time_index,
        TXN_INDEX: _dump_txn_index,
        SNAPSHOT: _dump_snapshot,
    }
    reader = readers.get(path.suffix)
    if reader is None:
        yield _problem(f"Ignoring unknown file {path}")
    else:
        yield from reader(path, options)


def format_row(row: Row) -> str:
    if row.kind in (RowKind.NOTE, RowKind.PROBLEM):
        return str(row.fields["text"])
    line = " ".join(f"{name}: {_text(name, value)}" for name, value in row.fields.items())
    return f"| {line}" if row.kind is RowKind.RECORD else line


def _text(name: str, value: object) -> str:
    if name in ("deleteHorizonMs", "currentTxnFirstOffset"):
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def _note(text: str) -> Row:
    return Row(RowKind.NOTE, {"text": text})


def _problem(text: str) -> Row:
    return Row(RowKind.PROBLEM, {"text": text})


def _open(path: Path) -> RealFile:
    return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _base_offset(path: Path) -> int:
    try:
        return int(path.name.partition(".")[0])
    except ValueError:
        return 0


# Log files


def _dump_log(path: Path, options: DumpOptions) -> Iterator[Row]:
    file = _open(path)
    size = file.size()
    yield _note(f"Log starting offset: {_base_offset(path)}")
    position = 0
    expected = None
    try:
        for position, header in scan_headers(file, str(path), 0, size):
            batch = memoryview(file.pread(header.size, position))
            valid = crc_matches(batch, header.crc)
            yield Row(RowKind.BATCH, _batch_fields(header, position, valid))
            if expected is not None and header.base_offset < expected:
                yield _problem(f"offset {header.base_offset} follows offset {expected - 1}")
            expected = header.next_offset
            if options.deep and valid:
                yield from _dump_records(batch, header, options)
            position += header.size
    except CorruptLogError:
        yield _problem(f"Found {size - position} invalid bytes at the end of {path.name}")


def _batch_fields(header: BatchHeader, position: int, valid: bool) -> Fields:
    horizon = header.attributes & DELETE_HORIZON_BIT
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": last_sequence_of(header.base_sequence, header.last_offset_delta),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if horizon else None,
        "position": position,
        _timestamp_type(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": CODECS[header.codec] if header.codec < len(CODECS) else header.codec,
        "crc": header.crc,
        "isvalid": valid,
    }


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.attributes & TIMESTAMP_TYPE_BIT else "CreateTime"


def _dump_records(batch: memoryview, header: BatchHeader, options: DumpOptions) -> Iterator[Row]:
    try:
        for record in read_records(batch):
            yield Row(RowKind.RECORD, _record_fields(batch, header, record, options))
    except DecodeError as error:
        yield _problem(f"records of the batch at offset {header.base_offset}: {error}")


def _record_fields(
    batch: memoryview, header: BatchHeader, record: Record, options: DumpOptions
) -> Fields:
    delta = record.offset - header.base_offset
    fields: Fields = {
        "offset": record.offset,
        _timestamp_type(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": last_sequence_of(header.base_sequence, delta),
        "headerKeys": [key.decode(errors="replace") for key, _ in record.headers],
    }
    if header.is_control:
        marker = parse_marker(batch)
        if marker is not None:
            fields["endTxnMarker"] = "COMMIT" if marker.commit else "ABORT"
            fields["coordinatorEpoch"] = marker.coordinator_epoch
        elif record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            fields["controlType"] = _CONTROL_KEY.unpack_from(record.key)[1]
    elif options.print_data:
        if record.key is not None:
            fields["key"] = record.key
        if record.value is not None:
            fields["payload"] = record.value
    return fields


# Indexes


def _dump_offset_index(path: Path, options: DumpOptions) -> Iterator[Row]:
    data, base = path.read_bytes(), _base_offset(path)
    entries = [(base + relative, at) for relative, at in _entries(data, OffsetIndex.ENTRY)]
    if len(data) % OffsetIndex.ENTRY.size:
        yield _problem(f"{path}: {len(data)} bytes are not a multiple of {OffsetIndex.ENTRY.size}")
    if not entries:
        yield _note(f"{path} is empty.")
        return
    if options.sanity_only:
        if entries[-1][0] <= base:
            yield _problem(f"{path}: the last offset is {entries[-1][0]}, the first is {base}")
        else:
            yield _note(f"{path} passed sanity check.")
        return
    log = _open(path.with_suffix(LOG))
    for number, (offset, position) in enumerate(entries):
        if offset == base and number > 0:
            return  # Kafka allocates indexes in advance: zeros follow
        found = _batch_at(log, position)
        if found is None or found.last_offset != offset:
            yield _problem(
                f"{path.name}: Index offset: {offset}, "
                f"log offset: {found.last_offset if found else 'none'}"
            )
        if not options.verify_only:
            yield Row(RowKind.ENTRY, {"offset": offset, "position": position})


def _dump_time_index(path: Path, options: DumpOptions) -> Iterator[Row]:
    data, base = path.read_bytes(), _base_offset(path)
    entries = [(time, base + relative) for time, relative in _entries(data, TimeIndex.ENTRY)]
    if len(data) % TimeIndex.ENTRY.size:
        yield _problem(f"{path}: {len(data)} bytes are not a multiple of {TimeIndex.ENTRY.size}")
    if options.sanity_only:
        if entries and (entries[-1][0] < entries[0][0] or entries[-1][1] < base):
            yield _problem(f"{path}: the last entry is smaller than the first")
        else:
            yield _note(f"{path} passed sanity check.")
        return
    log = _open(path.with_suffix(LOG))
    headers = _headers_by_last_offset(log, path)
    previous = -1
    for number, (timestamp, offset) in enumerate(entries):
        if offset == base and number > 0:
            return
        header = headers.get(offset)
        if header is None:
            yield _problem(f"{path.name}: Indexed offset: {offset} is not the end of a batch")
        elif header.max_timestamp != timestamp:
            yield _problem(
                f"{path.name}: Index timestamp: {timestamp}, log timestamp: {header.max_timestamp}"
            )
        if timestamp <= previous:
            yield _problem(f"{path.name}: Index timestamp: {timestamp} follows {previous}")
        previous = timestamp
        if not options.verify_only:
            yield Row(RowKind.ENTRY, {"timestamp": timestamp, "offset": offset})


def _entries(data: bytes, entry: Struct) -> Iterator[tuple[int, int]]:
    yield from entry.iter_unpack(data[: len(data) - len(data) % entry.size])


def _batch_at(log: RealFile, position: int) -> BatchHeader | None:
    try:
        return next((header for _, header in scan_headers(log, "", position, log.size())), None)
    except CorruptLogError:
        return None


def _headers_by_last_offset(log: RealFile, path: Path) -> dict[int, BatchHeader]:
    found = {}
    try:
        for _, header in scan_headers(log, str(path), 0, log.size()):
            found[header.last_offset] = header
    except CorruptLogError:
        pass  # the dump of the log file reports it
    return found


def _dump_txn_index(path: Path, _options: DumpOptions) -> Iterator[Row]:
    for aborted in parse(path.read_bytes()):
        yield Row(
            RowKind.ENTRY,
            {
                "version": VERSION,
                "producerId": aborted.producer_id,
                "firstOffset": aborted.first_offset,
                "lastOffset": aborted.last_offset,
                "lastStableOffset": aborted.last_stable_offset,
            },
        )


def _dump_snapshot(path: Path, _options: DumpOptions) -> Iterator[Row]:
    try:
        entries = decode_snapshot(path.read_bytes())
    except CorruptSnapshotError as problem:
        yield _problem(f"{path}: {problem}")
        return
    for producer_id, entry in entries.items():
        fields: Fields = {
            "producerId": producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.txn_first_offset
            if entry.txn_first_offset >= 0
            else None,
            "lastTimestamp": entry.last_timestamp,
        }
        for batch in entry.batches:
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        yield Row(RowKind.ENTRY, fields)
