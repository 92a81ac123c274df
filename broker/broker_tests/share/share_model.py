"""A model of a share partition in single records, and random walks that compare both.

The model has a plain dict with one entry per offset, and no runs, updates or limits of its own: it
changes only by the answers of the partition, and checks whether each answer is allowed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_broker.share.share_partition import (
    Acknowledged,
    Acquired,
    Limits,
    LogBatch,
    SharePartition,
    StateBatch,
    Update,
    Wanted,
)
from odradek_broker.share.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
)
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.share_codes import AcknowledgeType

RELEASE, RENEW = AcknowledgeType.RELEASE, AcknowledgeType.RENEW


def batches(first: int, last: int, size: int = 10) -> list[LogBatch]:
    return [LogBatch(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]


@dataclass
class Entry:
    state: str = "new"  # new, locked, free, done
    owner: str = ""
    until: float = 0.0
    delivered: int = 0


@dataclass
class Model:
    """The guarantees of a share group, per record."""

    limit: int
    records: dict[int, Entry] = field(default_factory=dict)

    def entry(self, offset: int) -> Entry:
        return self.records.setdefault(offset, Entry())

    def acquired(self, member: str, got: Sequence[Acquired], until: float) -> None:
        for batch in got:
            for offset in range(batch.first, batch.last + 1):
                entry = self.entry(offset)
                assert entry.state in ("new", "free"), f"{offset} is {entry.state}: delivered again"
                entry.delivered += 1
                assert entry.delivered == batch.delivery_count, f"{offset}: wrong delivery count"
                assert entry.delivered <= self.limit, f"{offset}: too many deliveries"
                entry.state, entry.owner, entry.until = "locked", member, until

    def may_acknowledge(self, member: str, offset: int, start: int) -> bool:
        entry = self.entry(offset)
        return offset < start or (entry.state == "locked" and entry.owner == member)

    def acknowledged(self, offset: int, kind: int, until: float) -> None:
        entry = self.entry(offset)
        if entry.state != "locked":
            return
        if kind == RENEW:
            entry.until = until
        elif kind == RELEASE:
            self.lost(offset)
        else:
            entry.state = "done"

    def lost(self, offset: int) -> None:
        entry = self.entry(offset)
        entry.state = "done" if entry.delivered >= self.limit else "free"

    def compare(self, partition: SharePartition, changing: set[int]) -> None:
        expected = {"new": None, "locked": ACQUIRED, "free": AVAILABLE}
        actual = {
            offset: run.delivery
            for run in partition.runs()
            for offset in range(run.first, run.last + 1)
        }
        for offset, entry in self.records.items():
            if offset in changing or entry.state == "new":
                continue
            delivery = actual.get(offset)
            if entry.state == "done":
                assert delivery is None or delivery.state in (ACKNOWLEDGED, ARCHIVED), offset
                continue
            assert delivery is not None, f"{offset} is lost: the model has it {entry.state}"
            assert delivery.state is expected[entry.state], f"{offset}: {delivery}, {entry}"
            assert delivery.deliveries == entry.delivered, offset
            if entry.state == "locked":
                assert (delivery.member_id, delivery.deadline_ms) == (entry.owner, entry.until)


class Walk:
    """Random steps of three members on one partition, with writes that succeed late or fail."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limits = Limits(
            lock_ms=100,
            locks_max=self.random.choice((20, 60)),
            delivery_count_max=self.random.choice((2, 4)),
        )
        self.partition = SharePartition(0)
        self.model = Model(self.limits.delivery_count_max)
        self.now = 0.0
        self.log_end = 0
        # Updates that are being written, and what the model does when they are.
        self.writing: list[tuple[Update, list[tuple[int, int]]]] = []
        self.saved: dict[int, tuple[int, int]] = {}
        self.saved_start = 0

    def step(self) -> None:
        self.now += self.random.choice((0.0, 1.0, 30.0))
        action = self.random.choice(
            (self.fetch, self.fetch, self.answer, self.answer, self.settle, self.settle)
            if self.random.random() < 0.9
            else (self.expire, self.leave, self.new_leader)
        )
        self.expire()
        action()
        self.partition.validate()
        changing = {offset for _, changes in self.writing for offset, _ in changes}
        self.model.compare(self.partition, changing)

    def fetch(self) -> None:
        self.log_end += self.random.randrange(30)
        member = self.random.choice("abc")
        at = self.partition.next_fetch_offset()
        wanted = Wanted(self.random.choice((1, 7, 50)), 10, strict=self.random.random() < 0.5)
        got = self.partition.acquire(
            member, at, batches(at - at % 7, self.log_end, 7), wanted, self.limits, self.now
        )
        if wanted.strict:
            assert sum(one.last - one.first + 1 for one in got) <= wanted.records_max
        self.model.acquired(member, got, self.now + self.limits.lock_ms)

    def answer(self) -> None:
        member = self.random.choice("abc")
        held = [o for o, e in self.model.records.items() if e.state == "locked"]
        if not held:
            return
        first = self.random.choice(held)
        last = min(first + self.random.randrange(8), self.partition.end_offset)
        kinds = [self.random.choice(tuple(AcknowledgeType)) for _ in range(first, last + 1)]
        if self.random.random() < 0.5:
            kinds = kinds[:1]
        of = {first + n: kinds[n if len(kinds) > 1 else 0] for n in range(last - first + 1)}
        changing = {offset for _, changes in self.writing for offset, _ in changes}
        allowed = all(
            self.model.may_acknowledge(member, offset, self.partition.start_offset)
            and offset not in changing
            for offset in of
        )
        batch = [Acknowledged(first, last, kinds)]
        try:
            update = self.partition.acknowledge(member, batch, self.limits, self.now)
        except KafkaError:
            assert not allowed, f"{first}–{last} of {member} was refused"
            return
        assert allowed, f"{first}–{last} of {member} was accepted"
        changes = []
        for offset, kind in of.items():
            if kind == RENEW:
                self.model.acknowledged(offset, kind, self.now + self.limits.lock_ms)
            elif offset >= self.partition.start_offset:
                changes.append((offset, int(kind)))
        if update is not None:
            self.writing.append((update, changes))

    def settle(self) -> None:
        if not self.writing:
            return
        update, changes = self.writing.pop(0)  # writes of one partition are in order
        written = self.random.random() < 0.8
        if written:
            self.write(update)
            for offset, kind in changes:
                self.model.acknowledged(offset, kind, 0.0)
        self.partition.settle(update, written=written)
        if not written:
            self.expire()

    def write(self, update: Update) -> None:
        self.saved_start = max(self.saved_start, update.start_offset)
        for batch in update.batches:
            for offset in range(batch.first, batch.last + 1):
                self.saved[offset] = (batch.state, batch.deliveries)

    def expire(self) -> None:
        changing = {offset for _, changes in self.writing for offset, _ in changes}
        update = self.partition.expire(self.limits, self.now)
        for offset, entry in self.model.records.items():
            if entry.state == "locked" and entry.until <= self.now and offset not in changing:
                self.model.lost(offset)
        if update is not None:
            self.write(update)
            self.partition.settle(update, written=True)

    def leave(self) -> None:
        member = self.random.choice("abc")
        changing = {offset for _, changes in self.writing for offset, _ in changes}
        update = self.partition.release(member, self.limits)
        for offset, entry in self.model.records.items():
            if (entry.state, entry.owner) == ("locked", member) and offset not in changing:
                self.model.lost(offset)
        if update is not None:
            self.write(update)
            self.partition.settle(update, written=True)

    def new_leader(self) -> None:
        """Only written state is left: locks and the deliveries since the last write are lost."""
        self.writing.clear()
        saved = [StateBatch(o, o, *s) for o, s in self.saved.items() if o >= self.saved_start]
        self.partition = SharePartition(self.saved_start, 1, saved)
        for offset, entry in self.model.records.items():
            state, count = self.saved.get(offset, (int(AVAILABLE), 0))
            if entry.state == "done":
                below = offset < self.partition.start_offset
                # Done in the model means written, or skipped after its last delivery.
                assert below or state in (ACKNOWLEDGED, ARCHIVED), f"{offset} comes back"
                continue
            assert offset >= self.partition.start_offset, f"{offset} is lost"
            known = offset <= self.partition.end_offset
            entry.state, entry.delivered = ("free" if known else "new"), count
