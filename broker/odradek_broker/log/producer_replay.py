"""Restore the producer state of a log: newest valid snapshot, then the batches after it.

A snapshot has only the newest batch of each producer. The few before it are read from the log
again, so that a client that repeats all the requests it had in flight gets the offsets of each,
not OUT_OF_ORDER_SEQUENCE_NUMBER for the older ones, after which librdkafka gives up.

Used at load and after a truncation. With `txn_index_from` the transaction indexes of the
segments from that offset on are rewritten, since recovery cannot trust them. Example: snapshots at
0 and 500, a log end of 620: the snapshot of 500 is read, then the batches of the offsets 500-619.
"""

import logging
from collections import deque
from collections.abc import Iterator

from odradek_broker.log.control import parse_marker
from odradek_broker.log.errors import CorruptLogError
from odradek_broker.log.file_names import SNAPSHOT, file_name
from odradek_broker.log.producer_snapshot import CorruptSnapshotError, state_from_snapshot
from odradek_broker.log.producer_state import (
    BATCHES_TO_RETAIN,
    ProducerState,
    batch_of,
)
from odradek_broker.log.segment import LogSegment
from odradek_broker.log.txn_index import AbortedTxn
from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import BatchHeader

logger = logging.getLogger(__name__)

# Bounds for reading the batches before a snapshot: a start with thousands of partitions must not
# become slow, and requests in flight are among the last batches of a partition.
RECALLED_HEADERS = 64
RECALLED_BYTES = 8 << 20


def restore_producer_state(
    disk: Disk,
    directory: str,
    segments: list[LogSegment],
    snapshots: list[Offset],
    end_offset: Offset,
    txn_index_from: Offset | None = None,
) -> ProducerState:
    """The state as of `end_offset`. Snapshots past it, and damaged ones, are removed."""
    for offset in snapshots:
        if offset > end_offset:
            disk.remove(snapshot_path(directory, offset))
    start_offset = segments[0].base_offset
    newest = end_offset if txn_index_from is None else min(end_offset, txn_index_from)
    state = ProducerState(start_offset)
    for offset in sorted(snapshots, reverse=True):
        if start_offset <= offset <= newest:
            path = snapshot_path(directory, offset)
            try:
                state = state_from_snapshot(disk.read(path), offset)
                _recall_batches(state, segments)
                break
            except CorruptSnapshotError as problem:
                logger.warning("%s is damaged (%s), using an older snapshot", path, problem)
                disk.remove(path)
    if state.end_offset < end_offset:
        _replay(state, segments, end_offset, txn_index_from)
    return state


def snapshot_path(directory: str, offset: Offset) -> str:
    return f"{directory}/{file_name(offset, SNAPSHOT)}"


def _recall_batches(state: ProducerState, segments: list[LogSegment]) -> None:
    """Complete the batches of producers from the log before the snapshot, newest first."""
    incomplete = {
        producer_id: entry for producer_id, entry in state.entries.items() if entry.batches
    }
    if not incomplete:
        return
    for header in _headers_before(segments, state.end_offset):
        entry = incomplete.get(header.producer_id)
        if entry is None or header.is_control:
            continue
        oldest = entry.batches[0]
        if header.base_offset >= oldest.first_offset:
            continue
        batch = batch_of(header, header.base_offset)
        if header.producer_epoch == entry.producer_epoch and batch.precedes(oldest):
            entry.batches.insert(0, batch)
            if len(entry.batches) < BATCHES_TO_RETAIN:
                continue
        del incomplete[header.producer_id]
        if not incomplete:
            return


def _headers_before(segments: list[LogSegment], offset: Offset) -> Iterator[BatchHeader]:
    """Headers of the last batches below the offset, newest first, within the bounds above.

    They end at a damaged batch: a log with one is loaded all the same, and its readers find it.
    """
    headers_left, bytes_left = RECALLED_HEADERS, RECALLED_BYTES
    for segment in reversed(segments):
        while offset > segment.base_offset:
            block: deque[BatchHeader] = deque(maxlen=headers_left)
            try:
                # As far back as the next entry of the offset index.
                start = segment.position_before(offset - 1)
                for _, header in segment.headers(start):
                    if header.base_offset >= offset:
                        break
                    block.append(header)
                    bytes_left -= header.size
                    if bytes_left < 0:
                        return
            except CorruptLogError as problem:
                logger.warning("%s", problem)
                return
            for header in reversed(block):
                yield header
                headers_left -= 1
                if not headers_left:
                    return
            if not block:
                break
            offset = block[0].base_offset


def _replay(
    state: ProducerState,
    segments: list[LogSegment],
    end_offset: Offset,
    txn_index_from: Offset | None,
) -> None:
    start_offset = state.end_offset
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= start_offset:
            continue
        rewrite_index = txn_index_from is not None and segment.base_offset >= txn_index_from
        if rewrite_index:
            segment.txn_index.truncate_to(segment.base_offset)
        for position, header in segment.headers(segment.position_before(start_offset)):
            if header.base_offset >= end_offset:
                break
            if header.producer_id >= 0 and header.base_offset >= start_offset:
                replay_batch(state, segment, position, header, write_index=rewrite_index)
    state.end_offset = end_offset


def replay_batch(
    state: ProducerState,
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    *,
    write_index: bool,
) -> None:
    if not header.is_control:
        state.add(header, header.base_offset)
        return
    marker = parse_marker(memoryview(segment.file().pread(header.size, position)))
    if marker is None:
        return
    completed = state.end_transaction(header, marker, header.base_offset)
    if completed is not None and completed.aborted and write_index:
        segment.txn_index.append(AbortedTxn.of(completed))
