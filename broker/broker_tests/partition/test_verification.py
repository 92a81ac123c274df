"""Batches that wait for the transaction's coordinator: order, markers, changes of role."""

from odradek_broker.partition.verification import FLOORS_MAX, Resume, Verifications
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import ProducerId

PRODUCER = ProducerId(7)


class Asked:
    """A coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Resume] = []

    def __call__(self, answered: Resume) -> None:
        self.waiting.append(answered)


def test_batches_wait_behind_the_first_in_their_order() -> None:
    verifications, ask = Verifications(), Asked()
    seen: list[tuple[int, ErrorCode]] = []
    for n in range(3):
        verifications.wait(7, 1, n, ask, lambda code, n=n: seen.append((n, code)))  # type: ignore[misc]
    assert len(ask.waiting) == 1
    assert verifications.pending(7, 1)
    ask.waiting[0](ErrorCode.none)
    assert seen == [(n, ErrorCode.none) for n in range(3)]
    assert not verifications.pending(7, 1)


def test_a_marker_refuses_waiting_batches_and_a_late_answer_has_no_effect() -> None:
    verifications, ask = Verifications(), Asked()
    seen: list[ErrorCode] = []
    verifications.wait(7, 1, 0, ask, seen.append)
    verifications.wait(8, 0, 0, ask, seen.append)
    verifications.end(7, 1)
    assert seen == [ErrorCode.invalid_txn_state]
    ask.waiting[0](ErrorCode.none)
    assert seen == [ErrorCode.invalid_txn_state]
    verifications.give_up(ErrorCode.not_leader_or_follower)
    ask.waiting[1](ErrorCode.none)
    assert seen[1:] == [ErrorCode.not_leader_or_follower]


def test_the_lowest_sequence_is_remembered_over_a_failure() -> None:
    """
    1. The batch with sequence 0 waits, and fails: the coordinator is unavailable.
    2. The batch with sequence 5 arrives: it must not be the first that is written.
    """
    verifications, ask = Verifications(), Asked()
    verifications.wait(7, 1, 0, ask, lambda _: None)
    ask.waiting[0](ErrorCode.network_exception)
    verifications.wait(7, 1, 5, ask, lambda _: None)
    assert verifications.floor(7, 1) == 0
    assert verifications.floor(7, 2) is None
    verifications.begun(7)
    assert verifications.floor(7, 1) is None


def test_the_number_of_floors_is_bounded() -> None:
    verifications, ask = Verifications(), Asked()
    for producer_id in range(FLOORS_MAX + 10):
        verifications.wait(producer_id, 0, 0, ask, lambda _: None)
    assert sum(verifications.floor(n, 0) is not None for n in range(FLOORS_MAX + 10)) == FLOORS_MAX


class Waiting:
    def __init__(self) -> None:
        self.verifications = Verifications()
        self.asked: list[Resume] = []
        self.heard: list[tuple[int, ErrorCode]] = []

    def batch(self, epoch: int, sequence: int = 0) -> None:
        def resume(code: ErrorCode) -> None:
            self.heard.append((epoch, code))

        self.verifications.wait(PRODUCER, epoch, sequence, self.asked.append, resume)


def test_a_marker_refuses_the_transaction_that_it_ends_and_not_the_next() -> None:
    """1. EndTxn is answered while markers are on their way; 2. the producer begins the next
    transaction; 3. its first batch is here before the marker of the one before."""
    waiting = Waiting()
    waiting.batch(epoch=4)
    waiting.batch(epoch=5)
    waiting.verifications.end(PRODUCER, 4)
    assert waiting.heard == [(4, ErrorCode.invalid_txn_state)]
    assert waiting.verifications.floor(PRODUCER, 5) == 0
    waiting.asked[1](ErrorCode.none)
    assert waiting.heard[1:] == [(5, ErrorCode.none)]


def test_markers_of_other_producers_refuse_no_batch() -> None:
    waiting = Waiting()
    waiting.batch(epoch=4)
    waiting.verifications.end(ProducerId(8), 9)
    assert waiting.heard == []


def test_an_answer_for_refused_batches_is_ignored() -> None:
    waiting = Waiting()
    waiting.batch(epoch=4)
    waiting.verifications.end(PRODUCER, 4)
    waiting.asked[0](ErrorCode.none)
    assert waiting.heard == [(4, ErrorCode.invalid_txn_state)]
