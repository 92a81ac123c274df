"""Planted bugs of transactions: each replaces one function by a wrong one, in test code only.

Next to each stands a seed that finds it, so that the quick suite need not search.
"""

from __future__ import annotations

from typing import Any

from broker_tests.sim.coord_mutants import _answers_at_once
from broker_tests.sim.mutants import Mutant
from odradek_broker.coordinator.host import ShardHost
from odradek_broker.handlers.produce import ProduceCall
from odradek_broker.log.log import Log
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.verification import Verifications
from odradek_broker.txn import transitions
from odradek_broker.txn.service import TransactionCoordinator
from odradek_protocol.byte_range import ByteRange
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.messages.produce import ProducePartition


def _nothing(*_: object, **__: object) -> None: ...


def _high_watermark(partition: Partition, read_committed: bool) -> Offset:
    """Readers of committed records see open transactions."""
    return partition.high_watermark


def _nobody_aborted(*_: object) -> list[Any]:
    return []


def _writes_unverified(
    call: ProduceCall,
    partition: Partition,
    asked: ProducePartition,
    records: ByteRange,
    now_ms: int,
) -> None:
    """The coordinator is not asked: it does not know that the partition is in the transaction."""
    call._write(partition, asked, records, now_ms)


def _any_epoch(current: Any, producer_id: ProducerId, producer_epoch: int) -> Any:
    """Any producer epoch may add partitions to the transaction."""
    assert current is not None
    return current


def _marker_refuses_all(waiting: Verifications, producer_id: ProducerId, epoch: int) -> None:
    """Also batches of the transaction after the one that ends. (The simulation found this.)"""
    for key in [key for key in waiting._waiting if key[0] == producer_id]:
        waiting._refuse(key, ErrorCode.invalid_txn_state)


def _any_marker(*_: object, **__: object) -> bool:
    """Late markers too, of an older coordinator or for an older transaction."""
    return False


TXN_SEEDS_MAX = 60

TXN_MUTANTS: tuple[tuple[Mutant, int], ...] = (
    (Mutant("end-told-before-it-is-committed", ((ShardHost, "settle", _answers_at_once),)), 8),
    (Mutant("markers-lost-after-a-crash", ((TransactionCoordinator, "_on_active", _nothing),)), 1),
    (
        Mutant(
            "last-stable-offset-ignored", ((Partition, "last_fetchable_offset", _high_watermark),)
        ),
        0,
    ),
    (Mutant("aborted-transactions-not-listed", ((Log, "aborted_in", _nobody_aborted),)), 0),
    (
        Mutant(
            "partitions-not-verified",
            ((ProduceCall, "_append_in_transaction", _writes_unverified),),
        ),
        0,
    ),
    (Mutant("late-markers-accepted", ((ProducerState, "check_marker", _any_marker),)), 7),
    (Mutant("marker-refuses-the-next", ((Verifications, "end", _marker_refuses_all),)), 0),
)

# Found by `FencedRun`: the producers of the other runs do not write once they are succeeded.
FENCED_MUTANT = Mutant("producer-epoch-ignored", ((transitions, "check_producer", _any_epoch),))
