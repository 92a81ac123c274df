"""What each request does to a transactional id. Pure: metadata in, a `Step` out.

A step says what to write (nothing, if `after` is None) and what to answer once that is
committed. What may not be is a KafkaError. The rules are those of Apache Kafka 4.3, see KIP-98,
KIP-360 (a producer that recovers keeps its id) and KIP-890 (an epoch per transaction).

Epochs, with transaction version 2: a client that writes with epoch 5 ends its transaction with
5; the markers carry 6, and 6 is what it goes on with. A delayed request of the ended
transaction has 5 and is refused everywhere; the same EndTxn again is known by 5 + 1 = 6 and gets
the same answer. When 32766 is used up, the markers carry 32767, and a new producer id follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from odradek_broker.txn.metadata import (
    EPOCH_BUMP_FROM,
    EPOCH_MAX,
    NO_EPOCH,
    NO_TIMESTAMP,
    TransactionMetadata,
)
from odradek_broker.txn.states import PREPARED, SETTLED, Event, TransactionState, next_state
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import NO_PRODUCER_ID, ProducerId, TopicPartition


@dataclass(frozen=True, slots=True)
class Step:
    """`error` is the answer although the step is taken: the client has to come again."""

    after: TransactionMetadata | None
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    error: ErrorCode = ErrorCode.none


class NeedsProducerIdError(Exception):
    """Decide again, with a producer id that was never given before (`fresh_id`)."""


def _fresh(fresh_id: ProducerId | None) -> ProducerId:
    if fresh_id is None:
        raise NeedsProducerIdError
    return fresh_id


def _answer(metadata: TransactionMetadata) -> Step:
    return Step(metadata, metadata.producer_id, metadata.producer_epoch)


# --- InitProducerId ---------------------------------------------------------------------------


def init_producer_id(
    current: TransactionMetadata | None,
    transactional_id: str,
    timeout_ms: int,
    expected: tuple[ProducerId, int] | None,
    *,
    server_version: int,
    now_ms: int,
    fresh_id: ProducerId | None,
) -> Step:
    """A producer begins, or (`expected` is what it had) goes on after an error.

    Whoever used the transactional id before is fenced: its open transaction is aborted first,
    and the client is told to come again.
    """
    if current is None:
        created = TransactionMetadata(
            transactional_id,
            _fresh(fresh_id),
            producer_epoch=0,
            timeout_ms=timeout_ms,
            last_update_timestamp_ms=now_ms,
        )
        return _answer(created)
    if expected is not None and not _may_go_on(current, *expected):
        raise KafkaError(ErrorCode.producer_fenced)
    if current.state is TransactionState.ONGOING:
        return replace_error(
            fence(current, server_version=server_version, now_ms=now_ms, fresh_id=fresh_id),
            ErrorCode.concurrent_transactions,
        )
    begun = replace(
        current,
        state=next_state(current.state, Event.INIT),
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=now_ms,
        previous_producer_id=current.producer_id,
    )
    expected_epoch = None if expected is None else expected[1]
    if current.epoch_exhausted and expected_epoch in (None, current.producer_epoch):
        rotated = replace(begun, producer_id=_fresh(fresh_id), producer_epoch=0)
        last = NO_EPOCH if expected is None else current.producer_epoch
        return _answer(replace(rotated, last_producer_epoch=last))
    if expected_epoch is None:
        epoch, last = current.producer_epoch + 1, NO_EPOCH
    elif expected_epoch == current.producer_epoch:
        epoch, last = current.producer_epoch + 1, current.producer_epoch
    elif expected_epoch == current.last_producer_epoch:
        # The same request again. No other instance came in between: that sets it to -1.
        epoch, last = current.producer_epoch, current.last_producer_epoch
        begun = replace(begun, previous_producer_id=current.previous_producer_id)
    else:
        raise KafkaError(ErrorCode.producer_fenced)
    return _answer(replace(begun, producer_epoch=epoch, last_producer_epoch=last))


def _may_go_on(current: TransactionMetadata, producer_id: ProducerId, epoch: int) -> bool:
    if producer_id == current.producer_id:
        return True
    # Perhaps it never heard of the new id that it got instead of its used-up one.
    return producer_id == current.previous_producer_id and epoch >= EPOCH_MAX - 1


def replace_error(step: Step, error: ErrorCode) -> Step:
    return replace(step, error=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def fence(
    current: TransactionMetadata, *, server_version: int, now_ms: int, fresh_id: ProducerId | None
) -> Step:
    """Abort the open transaction and refuse whoever wrote in it, from now on."""
    bumps = server_version >= EPOCH_BUMP_FROM
    rotate = bumps and current.epoch_exhausted
    after = replace(
        current,
        state=next_state(current.state, Event.FENCE),
        producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=NO_EPOCH,
        next_producer_id=_fresh(fresh_id) if rotate else NO_PRODUCER_ID,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=server_version,
    )
    return Step(after, *after.identity_afterwards)


# --- AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------------


def check_producer(
    current: TransactionMetadata | None, producer_id: ProducerId, epoch: int
) -> None:
    """Refuse who is not the current user of the transactional id."""
    if current is None:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if current.state in PREPARED and (producer_id, epoch) == current.identity_afterwards:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if producer_id != current.producer_id:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if epoch != current.producer_epoch:
        raise KafkaError(ErrorCode.producer_fenced)


def add_partitions(
    current: TransactionMetadata | None,
    producer_id: ProducerId,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    version: int,
    now_ms: int,
) -> Step:
    """The transaction has records in these partitions from now on; the first ones begin it."""
    check_producer(current, producer_id, producer_epoch)
    assert current is not None
    added = frozenset(partitions)
    state = next_state(current.state, Event.ADD)
    if current.state is TransactionState.ONGOING and added <= current.partitions:
        return Step(None, producer_id, producer_epoch)
    begins = current.state in SETTLED
    after = replace(
        current,
        state=state,
        partitions=current.partitions | added,
        start_timestamp_ms=now_ms if begins else current.start_timestamp_ms,
        last_update_timestamp_ms=now_ms,
        previous_producer_id=current.producer_id,
        client_transaction_version=version,
    )
    return _answer(after)


def verify_partitions(
    current: TransactionMetadata | None,
    producer_id: ProducerId,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Which of these partitions are in the transaction that this producer has open."""
    check_producer(current, producer_id, producer_epoch)
    assert current is not None
    if current.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
    return {
        partition: ErrorCode.none
        if partition in current.partitions
        else ErrorCode.transaction_abortable
        for partition in partitions
    }


# --- EndTxn -----------------------------------------------------------------------------------


def end_txn(
    current: TransactionMetadata | None,
    producer_id: ProducerId,
    producer_epoch: int,
    *,
    commit: bool,
    version: int,
    now_ms: int,
    fresh_id: ProducerId | None,
) -> Step:
    """Decide how the transaction ends. The answer is that of the decision, not of the markers."""
    if current is None:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    next_one = (producer_id, producer_epoch) == current.identity_afterwards
    if current.state in PREPARED and current.bumps_epoch and next_one:
        raise KafkaError(ErrorCode.concurrent_transactions)  # it cannot have begun yet
    repeated = _is_repeated(current, producer_id, producer_epoch)
    if not repeated:
        if producer_id != current.producer_id:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        if producer_epoch != current.producer_epoch:
            raise KafkaError(ErrorCode.producer_fenced)
    if current.state not in (TransactionState.ONGOING, TransactionState.EMPTY):
        known = repeated or not current.bumps_epoch
        if known and current.commits == commit:
            if current.state in PREPARED:
                raise KafkaError(ErrorCode.concurrent_transactions)
            return Step(None, *current.identity_afterwards)
        if known:
            raise KafkaError(ErrorCode.invalid_txn_state)
    return _end(current, commit=commit, version=version, now_ms=now_ms, fresh_id=fresh_id)


def _is_repeated(current: TransactionMetadata, producer_id: ProducerId, epoch: int) -> bool:
    """An EndTxn (version 2) that was carried out before: the epoch has gone on by one."""
    if not current.bumps_epoch or current.state in (
        TransactionState.ONGOING,
        TransactionState.EMPTY,
    ):
        return False
    if producer_id == current.producer_id:
        return epoch + 1 == current.producer_epoch
    return (
        producer_id == current.previous_producer_id
        and epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )


def _end(
    current: TransactionMetadata,
    *,
    commit: bool,
    version: int,
    now_ms: int,
    fresh_id: ProducerId | None,
) -> Step:
    bumps = version >= EPOCH_BUMP_FROM
    event = Event.COMMIT if commit else Event.ABORT
    if bumps and not commit and current.state in SETTLED:
        event = Event.EMPTY_ABORT
    after = replace(
        current,
        state=next_state(current.state, event),
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
    )
    if event is Event.EMPTY_ABORT:
        after = replace(after, start_timestamp_ms=now_ms)
    if bumps:
        after = replace(
            after,
            producer_epoch=current.producer_epoch + 1,
            last_producer_epoch=current.producer_epoch,
            next_producer_id=_fresh(fresh_id) if current.epoch_exhausted else NO_PRODUCER_ID,
        )
    return Step(after, *after.identity_afterwards)


# --- what the coordinator does by itself -------------------------------------------------------


def complete(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers are written."""
    producer_id, producer_epoch = current.identity_afterwards
    return replace(
        current,
        state=next_state(current.state, Event.MARKED),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_timestamp_ms=now_ms,
    )


def may_expire(current: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    return current.state in SETTLED and current.last_update_timestamp_ms + expiration_ms <= now_ms
