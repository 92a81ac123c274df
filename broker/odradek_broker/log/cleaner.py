"""The rules of compaction: which records of a batch stay, and whether the batch is rewritten.

Does no I/O: a batch comes in, the same, a smaller, an empty or no batch comes out. The rules are
those of current Kafka (KIP-534 for delete horizons):

    record      stays if the map has no later one of the same key; removed if it has no key
    tombstone   stays until its batch's delete horizon; that is set, `delete.retention.ms`
                ahead, when a run keeps a tombstone in a batch that has none yet
    aborted     is removed with its whole batch
    marker      stays while there are batches of its transaction, then until a delete horizon
    last batch  of a known producer stays, even empty, because it has the last sequence number;
                also the last batch before the end of the run, so that the segment still
                shows where it ended
    past the map  everything stays until the next run

Offsets never change, so gaps appear; a batch that keeps all its records is copied unchanged.

Example: a batch of offsets 10-12 with keys a, b, c, of which b was written again at 40: it
becomes a batch with the same base offset and last offset delta, and the records 10 and 12.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from odradek_broker.log.cleaned_transactions import CleanedTransactions
from odradek_broker.log.offset_map import NOT_FOUND, OffsetMap
from odradek_broker.log.record_columns import RecordColumns, keep_records, read_columns
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.records.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    BatchHeader,
)
from odradek_protocol.records.records import retain_records, uncompressed_records

OFFSET_MAX: Offset = 2**63 - 1


class LastBatch(NamedTuple):
    """The last batch of a producer that may still write."""

    last_offset: Offset  # of its last batch with records; -1 if there is only a marker
    producer_epoch: int


@dataclass(slots=True)
class CleanerStats:
    """Counts of one run, for metrics and the log line at its end."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0
    buffer_utilization: float = 0.0
    map_seconds: float = 0.0
    seconds: float = 0.0

    def summary(self) -> str:
        text = (
            f"{self.bytes_read / 1e6:.1f} MB became {self.bytes_written / 1e6:.1f} MB, "
            f"{self.records_read} records became {self.records_written}, "
            f"in {self.seconds:.1f} s ({self.map_seconds:.1f} s for the map, "
            f"which was {self.buffer_utilization:.0%} full)"
        )
        if self.records_without_key:
            text += f"; {self.records_without_key} records without a key were dropped"
        return text


class BatchCleaner:
    """The rules, and the state that they need in one run; `clean` takes batches in log order."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: Mapping[ProducerId, LastBatch],
        *,
        end_offset: Offset,
        now_ms: int,
        delete_retention_ms: int,
        stats: CleanerStats,
    ) -> None:
        """`end_offset`: where the cleanable part of the log ends."""
        self._map = offset_map
        self._transactions = transactions
        self._last_batches = last_batches
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._stats = stats

    def clean(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """The batch after cleaning: itself, a new one, or None if no record stays."""
        stats = self._stats
        stats.bytes_read += header.size
        stats.records_read += header.record_count
        cleaned = self._clean(header, batch)
        if cleaned is None and self._must_stay(header):
            # Kafka's form of an empty batch: no records, all other fields unchanged.
            cleaned = retain_records(header, b"", ())
        if cleaned is not None:
            stats.bytes_written += len(cleaned)
        return cleaned

    def _clean(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        horizon_ms = delete_horizon_of(header)
        expired = horizon_ms is not None and horizon_ms <= self._now_ms
        if header.attributes & CONTROL_BIT:
            not_needed = self._transactions.read_control(header, batch)
            if header.record_count == 0 or (not_needed and expired):
                return None
            self._stats.records_written += header.record_count
            if not_needed and horizon_ms is None:
                return self._set_horizon(header, batch)
            return batch
        if self._transactions.read_data(header) or header.record_count == 0:
            return None
        data = bytes(uncompressed_records(batch, header))
        columns = read_columns(data, header.record_count)
        kept = self._kept(header, columns, expired)
        if not kept:
            return None
        self._stats.records_written += len(kept)
        new_horizon_ms = None
        tombstones = columns.tombstones
        if horizon_ms is None and True in tombstones and any(tombstones[n] for n in kept):
            new_horizon_ms = self._new_horizon_ms
        if len(kept) == header.record_count and new_horizon_ms is None:
            return batch
        return keep_records(header, data, columns.starts, kept, new_horizon_ms)

    def _set_horizon(self, header: BatchHeader, batch: Buffer) -> bytes:
        """The same batch with a delete horizon: a later run removes it."""
        data = bytes(uncompressed_records(batch, header))
        starts = read_columns(data, header.record_count).starts
        numbers = range(header.record_count)
        return keep_records(header, data, starts, numbers, self._new_horizon_ms)

    def _kept(self, header: BatchHeader, columns: RecordColumns, expired: bool) -> list[int]:
        """The numbers of the records that stay."""
        base = header.base_offset
        offset_deltas, tombstones = columns.offset_deltas, columns.tombstones
        mapped = self._map.latest_offset - base  # records past this delta are not in the map
        kept = [
            number
            for number, (delta, latest) in enumerate(
                zip(offset_deltas, self._latest_offsets(columns, mapped), strict=True)
            )
            if base + delta >= latest
        ]
        if expired and True in tombstones:
            kept = [n for n in kept if not tombstones[n] or offset_deltas[n] > mapped]
        return kept

    def _latest_offsets(self, columns: RecordColumns, mapped: int) -> list[Offset]:
        """For each record the last offset of its key, as far as the map has it."""
        if None not in columns.keys:
            return self._map.find(cast("list[bytes]", columns.keys))
        found = iter(self._map.find([key for key in columns.keys if key is not None]))
        latest = []
        for key, delta in zip(columns.keys, columns.offset_deltas, strict=True):
            if key is not None:
                latest.append(next(found))
            elif delta <= mapped:
                self._stats.records_without_key += 1
                latest.append(OFFSET_MAX)
            else:
                latest.append(NOT_FOUND)
        return latest

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether a batch without records is still needed."""
        if header.next_offset == self._end_offset:
            return True
        last = self._last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        is_control = bool(header.attributes & CONTROL_BIT)
        return is_control and header.producer_epoch == last.producer_epoch


def delete_horizon_of(header: BatchHeader) -> int | None:
    """Until when the tombstones, or the marker, of this batch stay; None if that is not set."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
