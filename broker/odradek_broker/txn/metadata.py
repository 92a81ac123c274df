"""The state of one transactional id; immutable, replaced as a whole."""

from dataclasses import dataclass

from odradek_broker.txn.states import PREPARED, SETTLED, TransactionState
from odradek_protocol.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 2**15 - 1
# From this version on each transaction has its own producer epoch (KIP-890).
EPOCH_BUMP_FROM = 2


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """Invariants (`validate`):
    partitions have records, or markers still to be written: none in a settled state
    start_timestamp_ms is -1 exactly in EMPTY
    next_producer_id is only set between the decision to end a transaction and its markers
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int = NO_TIMESTAMP
    # Set if the previous transaction had another producer id, whose epochs are used up.
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # The next producer id, used when the markers are written: the epochs are used up.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    # The epoch with which this producer instance requested this one; it may repeat that.
    last_producer_epoch: int = NO_EPOCH
    client_transaction_version: int = 0

    @property
    def epoch_exhausted(self) -> bool:
        """The last epoch is never given to a client, so that the client can always be fenced."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def bumps_epoch(self) -> bool:
        return self.client_transaction_version >= EPOCH_BUMP_FROM

    @property
    def commits(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def identity_afterwards(self) -> tuple[ProducerId, int]:
        """Producer id and epoch of the next transaction, for the response to the client."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def timed_out(self, now_ms: int) -> bool:
        return (
            self.state is TransactionState.ONGOING
            and self.start_timestamp_ms + self.timeout_ms < now_ms
        )

    def validate(self) -> None:
        assert self.producer_id >= 0
        assert 0 <= self.producer_epoch <= EPOCH_MAX
        if self.state in SETTLED:
            assert not self.partitions
            assert self.next_producer_id == NO_PRODUCER_ID
        if self.state is TransactionState.ONGOING:
            assert self.next_producer_id == NO_PRODUCER_ID
        empty = self.state is TransactionState.EMPTY
        assert (self.start_timestamp_ms == NO_TIMESTAMP) == empty
        assert self.next_producer_id == NO_PRODUCER_ID or self.state in PREPARED
