"""Transactional batches that wait until the coordinator has confirmed their transaction.

A producer that crashed, or was cut off, may send a batch long after its transaction was ended:
written now, it would open a transaction that never ends, and hold the last stable offset back
for ever. So the first batch of a transaction in a partition is appended only when the
coordinator has confirmed that the partition is in it (KIP-890). Until its answer,

    more batches of the same producer and epoch wait behind the first, in their order;
    a marker of that producer refuses all of that epoch: what was confirmed is over;
    a change of the partition's role refuses all waiting batches.

If the coordinator does not answer, the first batch fails and is sent again, behind others that
were on their way. A partition that knows nothing of the producer would accept those: `floor`
remembers the lowest sequence that was ever kept waiting. Does no I/O; called by
`handlers/produce.py`.
"""

from collections.abc import Callable

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import ProducerId

# Producers whose lowest sequence is remembered although they wait no longer. Each failed
# verification leaves one; a forgotten producer could only write out of order, not twice.
FLOORS_MAX = 10_000

Resume = Callable[[ErrorCode], None]  # called when the answer is there
Ask = Callable[[Resume], None]  # ask the coordinator; exactly one answer


class Verifications:
    __slots__ = ("_floors", "_waiting", "ends")

    def __init__(self) -> None:
        self.ends = 0  # markers that were appended: a waiting request checks whether one arrived
        self._waiting: dict[tuple[ProducerId, int], list[Resume]] = {}
        self._floors: dict[ProducerId, tuple[int, int]] = {}  # epoch, sequence

    def pending(self, producer_id: ProducerId, epoch: int) -> bool:
        return (producer_id, epoch) in self._waiting

    def wait(
        self, producer_id: ProducerId, epoch: int, sequence: int, ask: Ask, resume: Resume
    ) -> None:
        """Call `resume` with the answer; `ask` unless a request is in flight."""
        self._lower_floor(producer_id, epoch, sequence)
        key = producer_id, epoch
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(resume)
            return
        waiting = self._waiting[key] = [resume]

        def answered(error: ErrorCode) -> None:
            if self._waiting.get(key) is waiting:  # else they were refused meanwhile
                del self._waiting[key]
                for one in waiting:
                    one(error)

        ask(answered)

    def floor(self, producer_id: ProducerId, epoch: int) -> int | None:
        """The lowest sequence that waited here, if the transaction has not begun since."""
        known = self._floors.get(producer_id)
        return known[1] if known is not None and known[0] == epoch else None

    def begun(self, producer_id: ProducerId) -> None:
        """A batch was appended: from now on the log knows the sequence."""
        self._floors.pop(producer_id, None)

    def end(self, producer_id: ProducerId, epoch: int) -> None:
        """A marker was appended: transactions of the producer up to this epoch are over.

        A batch of a later one goes on waiting: it came before the marker did.
        """
        self.ends += 1
        floor = self._floors.get(producer_id)
        if floor is not None and floor[0] <= epoch:
            del self._floors[producer_id]
        for key in [key for key in self._waiting if key[0] == producer_id and key[1] <= epoch]:
            self._refuse(key, ErrorCode.invalid_txn_state)

    def give_up(self, error: ErrorCode) -> None:
        """This broker does not lead any more."""
        self._floors.clear()
        for key in list(self._waiting):
            self._refuse(key, error)

    def _refuse(self, key: tuple[ProducerId, int], error: ErrorCode) -> None:
        for resume in self._waiting.pop(key, ()):
            resume(error)

    def _lower_floor(self, producer_id: ProducerId, epoch: int, sequence: int) -> None:
        known = self._floors.get(producer_id)
        if sequence < 0:
            return  # offsets have none
        if known is None or known[0] < epoch or (known[0] == epoch and sequence < known[1]):
            self._floors[producer_id] = epoch, sequence
        if len(self._floors) > FLOORS_MAX:
            del self._floors[next(iter(self._floors))]
