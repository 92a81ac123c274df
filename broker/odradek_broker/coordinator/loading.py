"""Replays the batches of an internal partition into a shard. Does no I/O."""

import logging
from collections.abc import Iterator

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.coordinator.shard import Shard
from odradek_broker.log.control import parse_marker
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import NO_PRODUCER_ID, Offset
from odradek_protocol.records.record_batch import HEADER_BYTES, BatchHeader, read_header
from odradek_protocol.records.records import read_records

logger = logging.getLogger(__name__)


def batches_of(chunk: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches in bytes read from a log; a partial one at the end is left out."""
    view = memoryview(chunk)
    at = 0
    while at + HEADER_BYTES <= len(view):
        header = read_header(view, at)
        if at + header.size > len(view):
            return
        yield header, view[at : at + header.size]
        at += header.size


def replay_batch(shard: Shard, header: BatchHeader, batch: memoryview) -> Offset:
    """Replays the batch; returns the offset after it."""
    if header.is_control:
        marker = parse_marker(batch)
        if marker is not None:
            shard.replay_end_transaction(header.producer_id, committed=marker.commit)
        return header.next_offset
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    try:
        for record in read_records(batch):
            if record.key is not None:
                shard.replay(
                    record.offset, producer_id, CoordinatorRecord(record.key, record.value)
                )
    except DecodeError as error:
        # Written by another client: it must not keep the shard from being loaded.
        logger.error(
            "the batch at offset %d was not written by a coordinator and is skipped: %s",
            header.base_offset,
            error,
        )
    return header.next_offset
