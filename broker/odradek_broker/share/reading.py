"""Reads records for a share group: the bytes, and the batches that they hold.

The headers of the batches say which offsets there are, and which batches are not delivered:
control batches, and with share.isolation.level=read_committed those of aborted transactions.

A fetch allows 50 MB and mostly wants 500 records, so the file is read in steps: 256 KB, and four
times as much while that does not hold enough records. Example: of batches of 400 KB with 400
records each, 1 MB is read.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from odradek_broker.log.control import parse_marker
from odradek_broker.log.types import AbortedTransaction
from odradek_broker.partition.partition import Partition
from odradek_broker.runtime.disk import File
from odradek_broker.share.share_partition import Acquired, LogBatch
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import HEADER_BYTES, BatchHeader, read_header

FIRST_READ_BYTES = 256 * 1024
READ_GROWTH = 4


class ReadBatches(NamedTuple):
    data: bytes
    batches: list[LogBatch]
    positions: list[int]  # where each batch begins in `data`; one more for the end of the last

    def slice(self, acquired: Sequence[Acquired]) -> bytes:
        """The batches that have acquired records, and those between them."""
        first, last = acquired[0].first, acquired[-1].last
        begin = next(n for n, batch in enumerate(self.batches) if batch.last >= first)
        end = max(n for n, batch in enumerate(self.batches) if batch.first <= last)
        return self.data[self.positions[begin] : self.positions[end + 1]]


def read_batches(
    partition: Partition,
    offset: Offset,
    bytes_max: int,
    enough: Callable[[Offset], bool],
    *,
    read_committed: bool,
    whole: bool,
) -> ReadBatches | None:
    """Batches from `offset` on; None if none may be read. `whole`: at least one whole batch.

    `enough`: whether no batch after this offset is needed."""
    end = partition.last_fetchable_offset(read_committed)
    log = partition.log
    if offset >= end or bytes_max <= 0:
        return None
    found, first = log.read(offset, bytes_max, end, min_one_batch=whole)
    if found is None:
        return None
    file = cast(File, found.file)
    aborted: Iterable[AbortedTransaction] = ()
    if read_committed:
        aborted = log.aborted_in(found, first, offset, end)
    aborted = sorted(aborted, key=lambda one: one.first_offset)
    size = FIRST_READ_BYTES
    while True:
        size = min(size, found.length)
        read = _parse(file.pread(size, found.position), aborted)
        if size == found.length or (read.batches and enough(read.batches[-1].last)):
            return read
        size *= READ_GROWTH


def _parse(data: bytes, all_aborted: Sequence[AbortedTransaction]) -> ReadBatches:
    aborted = list(all_aborted)
    batches: list[LogBatch] = []
    positions: list[int] = []
    open_aborted: set[int] = set()
    at = 0
    while at + HEADER_BYTES <= len(data):
        header = read_header(data, at)
        if at + header.size > len(data):
            break
        last = header.next_offset - 1
        while aborted and aborted[0].first_offset <= last:
            open_aborted.add(aborted.pop(0).producer_id)
        batches.append(LogBatch(header.base_offset, last, _is_delivered(header, open_aborted)))
        if header.is_control and header.producer_id in open_aborted:
            marker = parse_marker(memoryview(data)[at : at + header.size])
            if marker is not None and not marker.commit:
                open_aborted.discard(header.producer_id)
        positions.append(at)
        at += header.size
    positions.append(at)
    return ReadBatches(data, batches, positions)


def _is_delivered(header: BatchHeader, open_aborted: set[int]) -> bool:
    if header.is_control:
        return False
    return not (header.is_transactional and header.producer_id in open_aborted)
