"""The state of a partition's idempotent and transactional producers.

For each producer id: the epoch, the last five batches (so that a retried batch is answered
with its first offsets and not written again) and the open transaction. The sequence check, the
fencing of old epochs and the last stable offset are based on it. The rules are those of current
Kafka; in particular an unknown producer (expired, or its records were deleted) may continue with
any sequence number. Example: producer 7 wrote sequences 0-9; 10 is accepted, 5-9 is a duplicate if
it was one batch, 12 is OUT_OF_ORDER_SEQUENCE_NUMBER.

Only `check` raises; `add` and `end_transaction` record what was appended, on leader, follower
and in recovery alike. The file format is in `producer_snapshot.py`.
"""

from typing import Final, NamedTuple

from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.records.record_batch import TRANSACTIONAL_BIT, BatchHeader

BATCHES_TO_RETAIN: Final = 5  # as many requests as a client may have in flight
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
NO_OFFSET: Offset = -1
NO_TIMESTAMP: Final = -1
EPOCH_PER_TRANSACTION_FROM: Final = 2  # of the transaction versions


class ProducerBatch(NamedTuple):
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_MAX + 1

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta

    def precedes(self, other: "ProducerBatch") -> bool:
        """The producer wrote nothing between the two."""
        expected = 0 if self.last_sequence == SEQUENCE_MAX else self.last_sequence + 1
        return self.last_sequence >= 0 and other.first_sequence == expected


class ProducerEntry:
    """Invariant: at most 5 batches, all of `producer_epoch`, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "producer_epoch",
        "txn_first_offset",
    )

    def __init__(self, producer_epoch: int = NO_EPOCH) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset: Offset = NO_OFFSET
        self.batches: list[ProducerBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class EndTxnMarker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


class CompletedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # that of the marker
    aborted: bool
    last_stable_offset: Offset  # right after the marker


def last_sequence_of(base_sequence: int, offset_delta: int) -> int:
    """Sequence numbers continue with 0 after 2^31 - 1; coordinators write without any (-1)."""
    if base_sequence < 0:
        return NO_SEQUENCE
    last = base_sequence + offset_delta
    return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1


def batch_of(header: BatchHeader, base_offset: Offset) -> ProducerBatch:
    delta = header.last_offset_delta
    last_sequence = last_sequence_of(header.base_sequence, delta)
    return ProducerBatch(last_sequence, base_offset + delta, delta, header.max_timestamp)


class ProducerState:
    """Invariants:
    ongoing: first offset → producer id, ascending; its entries have that txn_first_offset
    unreplicated: first offset → marker's offset, of transactions that ended above the high
    watermark; they hold back the last stable offset like open ones
    """

    __slots__ = ("end_offset", "entries", "ongoing", "snapshot_offset", "unreplicated")

    def __init__(self, offset: Offset = 0) -> None:
        self.entries: dict[ProducerId, ProducerEntry] = {}
        self.ongoing: dict[Offset, ProducerId] = {}
        self.unreplicated: dict[Offset, Offset] = {}
        self.end_offset = offset  # the state covers all batches below this offset
        self.snapshot_offset = offset  # of the newest snapshot file

    def check(self, header: BatchHeader, *, check_sequence: bool = True) -> ProducerBatch | None:
        """Refuse a batch that must not be appended; return the original of a duplicate."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch = header.producer_epoch
        if epoch == entry.producer_epoch and check_sequence:
            first = header.base_sequence
            last = last_sequence_of(first, header.last_offset_delta)
            expected = entry.last_sequence + 1
            if not (first == expected or (first == 0 and expected == SEQUENCE_MAX + 1)):
                for batch in entry.batches:
                    if batch.last_sequence == last and batch.first_sequence == first:
                        return batch
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {header.producer_id}: sequence {first} after {expected - 1}",
                )
        elif epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id}: epoch {epoch} after {entry.producer_epoch}",
            )
        elif check_sequence and header.base_sequence != 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id}: epoch {epoch} begins with sequence "
                f"{header.base_sequence}",
            )
        if entry.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction",
            )
        return None

    def add(self, header: BatchHeader, base_offset: Offset) -> None:
        """Record an appended batch with records (not a marker)."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        batches = entry.batches
        if entry.producer_epoch != header.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            batches.clear()
        elif len(batches) == BATCHES_TO_RETAIN:
            del batches[0]
        batches.append(batch_of(header, base_offset))
        entry.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_BIT and entry.txn_first_offset < 0:
            entry.txn_first_offset = base_offset
            self.ongoing[base_offset] = header.producer_id

    def check_not_fenced(self, producer_id: ProducerId, epoch: int) -> None:
        """Refuse an epoch older than the last one that wrote here; needs no coordinator."""
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id}: epoch {epoch}, now {entry.producer_epoch}",
            )

    def has_open_transaction(self, producer_id: ProducerId, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.producer_epoch == epoch

    def check_marker(
        self,
        producer_id: ProducerId,
        epoch: int,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> bool:
        """Refuse an outdated marker; True if this very marker was written already.

        From transaction version 2 on (KIP-890) a marker has a higher epoch than the records of its
        transaction. So a late one, when the next transaction has begun, is recognised by its epoch
        and does not end that transaction.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            if epoch < NO_EPOCH:
                raise KafkaError(
                    ErrorCode.invalid_producer_epoch,
                    f"marker of producer {producer_id}: epoch {epoch} cannot be",
                )
            return False
        own_epoch = transaction_version >= EPOCH_PER_TRANSACTION_FROM
        known = entry.producer_epoch
        if epoch < known or (own_epoch and epoch == known and entry.txn_first_offset >= 0):
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"marker of producer {producer_id}: epoch {epoch} after {known}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of producer {producer_id}: coordinator epoch {coordinator_epoch} after "
                f"{entry.coordinator_epoch}",
            )
        return own_epoch and epoch == known

    def end_transaction(
        self, header: BatchHeader, marker: EndTxnMarker, offset: Offset
    ) -> CompletedTxn | None:
        """Record an appended marker; None if the producer had no open transaction here."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.producer_epoch != header.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first = entry.txn_first_offset
        entry.txn_first_offset = NO_OFFSET
        if first < 0 or self.ongoing.pop(first, None) is None:
            return None
        self.unreplicated[first] = offset
        stable = next(iter(self.ongoing), offset + 1)
        return CompletedTxn(producer_id, first, offset, not marker.commit, stable)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The start of the first transaction whose outcome is open, or not replicated yet."""
        first = next(iter(self.ongoing), None)
        if not self.unreplicated:
            return first
        unreplicated = min(self.unreplicated)
        return unreplicated if first is None else min(first, unreplicated)

    def forget_replicated(self, high_watermark: Offset) -> None:
        if self.unreplicated:
            self.unreplicated = {
                first: last for first, last in self.unreplicated.items() if last >= high_watermark
            }

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for `producer.id.expiration.ms`."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
