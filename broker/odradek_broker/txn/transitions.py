"""The effect of each request on a transactional id: pure functions, metadata in, a `Step` out.

A step has the record to write (none, if `after` is None) and the response once it is committed.
Requests that are not allowed raise KafkaError. The rules are those of Apache Kafka 4.3, see
KIP-98, KIP-360 (a producer that recovers keeps its id) and KIP-890 (an epoch per transaction).

Epochs, with transaction version 2: a client that writes with epoch 5 ends its transaction with 5.
The markers carry 6, and the client continues with 6. A delayed request of the ended transaction
has 5 and is refused everywhere; a repeated EndTxn is recognised by 5 + 1 = 6 and gets the same
response. When 32766 is used up, the markers carry 32767, and a new producer id follows.
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
    """`error` is the response although the step is taken: the client has to retry."""

    after: TransactionMetadata | None
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    error: ErrorCode = ErrorCode.none


class NeedsProducerIdError(Exception):
    """Decide again, with a new producer id (`fresh_id`)."""


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
    """A producer starts, or continues after an error (`expected` is its id and epoch).

    The previous user of the transactional id is fenced: its open transaction is aborted first,
    and the client has to retry.
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
        # A repeated request. No other instance came in between: that would have set it to -1.
        epoch, last = current.producer_epoch, current.last_producer_epoch
        begun = replace(begun, previous_producer_id=current.previous_producer_id)
    else:
        raise KafkaError(ErrorCode.producer_fenced)
    return _answer(replace(begun, producer_epoch=epoch, last_producer_epoch=last))


def _may_go_on(current: TransactionMetadata, producer_id: ProducerId, epoch: int) -> bool:
    if producer_id == current.producer_id:
        return True
    # The response with its new producer id may have been lost.
    return producer_id == current.previous_producer_id and epoch >= EPOCH_MAX - 1


def replace_error(step: Step, error: ErrorCode) -> Step:
    return replace(step, error=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def fence(
    current: TransactionMetadata, *, server_version: int, now_ms: int, fresh_id: ProducerId | None
) -> Step:
    """Aborts the open transaction and fences its producer."""
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
    """Raises KafkaError unless this is the current user of the transactional id."""
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
    """Adds partitions to the transaction; the first ones begin it."""
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
    """Decides how the transaction ends. The response does not wait for the markers."""
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
    """Whether this EndTxn (version 2) was carried out already: the epoch is one higher."""
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


# --- decisions without a request ---------------------------------------------------------------


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
