"""Batches that wait until their transaction is confirmed: who is refused, and when."""

from odradek_broker.model.errors import ErrorCode
from odradek_broker.model.ids import ProducerId
from odradek_broker.partition.verification import Resume, Verifications

PRODUCER = ProducerId(7)


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


def test_markers_of_others_refuse_nobody() -> None:
    waiting = Waiting()
    waiting.batch(epoch=4)
    waiting.verifications.end(ProducerId(8), 9)
    assert waiting.heard == []


def test_the_answer_to_those_who_were_refused_is_not_heard() -> None:
    waiting = Waiting()
    waiting.batch(epoch=4)
    waiting.verifications.end(PRODUCER, 4)
    waiting.asked[0](ErrorCode.none)
    assert waiting.heard == [(4, ErrorCode.invalid_txn_state)]
