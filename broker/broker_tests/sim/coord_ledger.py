"""A ledger: the smallest possible coordinator, to test the code that all coordinators share.

A key has a count. `add` is accepted only with the right count; `look` returns it. Each key has
one client, which does one thing at a time, so what it must see is simple:

    answers are durable         a count that was returned (by add or look) never goes back
    nothing is invented         a count is at most the number of requests, answered or not
    parked and timers           `wait` is parked until the next add or until its time is over; its
                                answer is a count as well

So an answer before the commit, a shard that was loaded in part, a deposed coordinator that still
decides, and a record that is replayed twice are all found.
"""

from __future__ import annotations

from broker_tests.sim.world import SimulationError
from odradek_broker.coordinator.result import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorResult,
    DeferredResponse,
    Moment,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId

WAIT_MS = 150.0


class LedgerShard:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._waiting: dict[str, list[DeferredResponse]] = {}
        self._timers: Timers[str] = Timers()
        self._epoch: LeaderEpoch = -1
        self._last_offset: Offset = -1

    # ------------------------------------------------------------ Shard

    def replay(self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        if offset <= self._last_offset:
            raise SimulationError(f"offset {offset} is replayed after {self._last_offset}")
        self._last_offset = offset
        assert record.value is not None
        assert producer_id == -1
        key, count = record.key.decode(), int(record.value)
        if count != self.counts.get(key, 0) + 1:
            raise SimulationError(f"{key} goes from {self.counts.get(key)} to {count} at {offset}")
        self.counts[key] = count

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        raise AssertionError("a ledger has no transactions")

    def loaded(
        self, leader_epoch: LeaderEpoch, image: MetadataImage, now: Moment
    ) -> CoordinatorResult[None]:
        self._epoch = leader_epoch
        return NOTHING

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        if leader_epoch <= self._epoch:
            raise SimulationError(f"epoch {leader_epoch} after {self._epoch}")
        self._epoch = leader_epoch

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:
        return NOTHING

    def next_deadline_ms(self) -> float:
        return self._timers.next_deadline_ms()

    def expire(self, now: Moment) -> CoordinatorResult[None]:
        """Requests that have waited long enough get the count; that is an entry too."""
        answers: list[tuple[DeferredResponse, int]] = []
        records = []
        while (key := self._timers.pop_due(now.monotonic_ms)) is not None:
            record = self._one_more(key)
            records.append(record)
            answers += [(ticket, int(record.value or 0)) for ticket in self._waiting.pop(key, ())]
        return CoordinatorResult(records, None, answers, volatile=True)

    # ------------------------------------------------------------ decisions

    def add(self, key: str, known: int, now: Moment) -> CoordinatorResult[int]:
        count = self.counts.get(key, 0)
        if count != known:
            raise KafkaError(ErrorCode.unknown_member_id, str(count))
        record = self._one_more(key)
        self._timers.cancel(key)
        tickets = self._waiting.pop(key, ())
        answers = [(ticket, count + 1) for ticket in tickets]
        return CoordinatorResult([record], count + 1, answers, volatile=bool(tickets))

    def wait(self, key: str, now: Moment) -> CoordinatorResult[int]:
        ticket = DeferredResponse()
        self._waiting.setdefault(key, []).append(ticket)
        self._timers.set(key, now.monotonic_ms + WAIT_MS)
        return CoordinatorResult((), ticket)

    def look(self, key: str, _: Moment) -> int:
        return self.counts.get(key, 0)

    def _one_more(self, key: str) -> CoordinatorRecord:
        return CoordinatorRecord(key.encode(), b"%d" % (self.counts.get(key, 0) + 1))


class LedgerChecker:
    """The requests and answers of the client of each key."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}  # entries that there may be, at most
        self.told: dict[str, int] = {}  # entries that there are, at least
        self.answers = 0

    def asks(self, key: str) -> None:
        self.asked[key] = self.asked.get(key, 0) + 1

    def hears(self, key: str, count: int, how: str) -> str | None:
        """The violation, if there is one."""
        self.answers += 1
        least, most = self.told.get(key, 0), self.asked.get(key, 0)
        if count < least:
            return f"{key}: {how} returned {count} after {least}"
        if count > most:
            return f"{key}: {how} tells of {count}, and only {most} were asked for"
        self.told[key] = count
        return None
