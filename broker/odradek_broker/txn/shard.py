"""The transactional ids of one partition of `__transaction_state`. Does no I/O.

`service.py` checks for timeouts and expiry periodically, so there are no timers here.
"""

import logging
from collections.abc import Iterator

from odradek_broker.coordinator.result import NOTHING, CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.txn.log_records import decode_key, decode_value, encode_key, encode_value
from odradek_broker.txn.metadata import TransactionMetadata
from odradek_broker.txn.states import PREPARED, TransactionState
from odradek_broker.txn.transitions import Step
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId

logger = logging.getLogger(__name__)


class TransactionShard:
    """Invariant: an id in state DEAD is not in `transactions`."""

    def __init__(self) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self.coordinator_epoch: LeaderEpoch = -1

    def replay(self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord) -> None:  # noqa: ARG002
        try:
            transactional_id = decode_key(record.key)
            if transactional_id is None:
                logger.warning(
                    "the record at offset %d is of an unknown kind and is skipped", offset
                )
                return
            if record.value is None:
                self.transactions.pop(transactional_id, None)
                return
            metadata = decode_value(transactional_id, record.value)
        except DecodeError as error:
            logger.warning("the record at offset %d is skipped: %s", offset, error)
            return
        if metadata.state is TransactionState.DEAD:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = metadata

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """No record of this topic is part of a transaction."""

    def loaded(
        self,
        leader_epoch: LeaderEpoch,
        image: MetadataImage,  # noqa: ARG002
        now: Moment,  # noqa: ARG002
    ) -> CoordinatorResult[None]:
        self.coordinator_epoch = leader_epoch
        return NOTHING

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        self.coordinator_epoch = leader_epoch

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:  # noqa: ARG002
        return NOTHING

    def next_deadline_ms(self) -> float:
        return float("inf")

    def expire(self, now: Moment) -> CoordinatorResult[None]:  # noqa: ARG002
        return NOTHING

    # --- queries and records ----------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        return self.transactions.get(transactional_id)

    def prepared(self) -> Iterator[TransactionMetadata]:
        """Decided transactions, whose markers have to be written."""
        return (one for one in self.transactions.values() if one.state in PREPARED)


def result_of(step: Step) -> CoordinatorResult[Step]:
    after = step.after
    if after is None:
        return CoordinatorResult((), step)
    record = CoordinatorRecord(encode_key(after.transactional_id), encode_value(after))
    return CoordinatorResult((record,), step)


def tombstone(transactional_id: str) -> CoordinatorResult[None]:
    return CoordinatorResult((CoordinatorRecord(encode_key(transactional_id), None),), None)
