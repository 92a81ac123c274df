"""The states of a transactional id, as a table: (state, event) → next state.

    Empty ──ADD──► Ongoing ──COMMIT──► PrepareCommit ──MARKED──► CompleteCommit
      ▲             │  └────ABORT────► PrepareAbort  ──MARKED──► CompleteAbort
      └──────────────── INIT ◄──────────────────────────────────────┘

In PrepareCommit and PrepareAbort the outcome is decided: the markers are written even after a
crash, by the next coordinator if necessary. FENCE is an abort that the coordinator itself decides
(a new instance of the producer, or a timeout); it raises the epoch in the same step, so Kafka's
PrepareEpochFence never occurs in our log. EMPTY_ABORT (KIP-890) ends a transaction that the
coordinator never saw, to get a new epoch.

Numbers and names are Kafka's: the numbers are in the log, the names in ListTransactions.
"""

from enum import Enum, IntEnum

from odradek_protocol.error_codes import ErrorCode, KafkaError


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The name in ListTransactions, for example PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Event(Enum):
    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn"
    COMMIT = "EndTxn commit"
    ABORT = "EndTxn abort"
    EMPTY_ABORT = "EndTxn abort without a transaction"
    FENCE = "abort by the coordinator"
    MARKED = "all markers written"
    EXPIRE = "transactional.id.expiration.ms"


_S, _E = TransactionState, Event

SETTLED = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)  # no transaction is open
PREPARED = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)  # decided; markers have to be written

TRANSITIONS: dict[tuple[TransactionState, Event], TransactionState] = {
    **{(state, _E.INIT): _S.EMPTY for state in SETTLED},
    **{(state, _E.ADD): _S.ONGOING for state in (*SETTLED, _S.ONGOING)},
    **{(state, _E.EMPTY_ABORT): _S.PREPARE_ABORT for state in SETTLED},
    **{(state, _E.EXPIRE): _S.DEAD for state in SETTLED},
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    (_S.ONGOING, _E.FENCE): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _E.MARKED): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.MARKED): _S.COMPLETE_ABORT,
}


def next_state(state: TransactionState, event: Event) -> TransactionState:
    """The next state. If the table has none: CONCURRENT_TRANSACTIONS while markers are being
    written, else INVALID_TXN_STATE."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        busy = state in PREPARED and event in (_E.INIT, _E.ADD)
        raise KafkaError(
            ErrorCode.concurrent_transactions if busy else ErrorCode.invalid_txn_state,
            f"{event.value} in state {state.kafka_name}",
        )
    return after
