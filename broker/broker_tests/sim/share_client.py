"""Members of a share group in the simulation, and what they may rely on (`ShareChecker`).

A member opens a session at the leader of a partition, fetches, and acknowledges: mostly it accepts,
sometimes it releases or rejects, forgets to answer, or dies while it holds locks. One that gets no
answer in time closes its connection and continues as another member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from broker_tests.sim.client_calls import ClientCalls
from broker_tests.sim.coord_loop import sim_loop
from broker_tests.sim.share_node import ShareNode
from odradek_broker.coordinator.loading import batches_of
from odradek_broker.share.service import Fetched, Wait
from odradek_broker.share.sessions import ShareSession
from odradek_broker.share.share_partition import Acknowledged, Wanted
from odradek_broker.share.state import Key
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset, TopicPartition
from odradek_protocol.records.records import read_records
from odradek_protocol.share_codes import AcknowledgeType

if TYPE_CHECKING:
    from broker_tests.sim.share_run import ShareRun

T = TypeVar("T")
GROUP = "queue"
ANSWER_MS_MAX = 700
LOST_ANSWERS = 0.04
FETCH_WAIT_MS = 120.0
FETCH_BYTES = 2_000
FORGETS_BELOW_MS = 10_000
INITIALIZED_AGAIN = 0.03
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Place(NamedTuple):
    """A leader: one life of a broker, in one epoch of a partition."""

    node_id: int
    life: UUID
    epoch: LeaderEpoch


class Lock(NamedTuple):
    place: Place
    member: str
    until_ms: float


@dataclass
class KnownRecord:
    """The deliveries of one record."""

    lock: Lock | None = None
    accepted_in: LeaderEpoch | None = None  # acknowledged as durable
    asked: bool = False  # an acceptance or rejection was sent
    deliveries: int = 0  # the largest count that a member saw


@dataclass
class ShareChecker:
    """Each record goes to one member at a time, is done with once accepted, and is not lost."""

    fail: Callable[[str], None]
    limit: int
    lock_ms: int
    records: dict[tuple[TopicPartition, Offset], KnownRecord] = field(default_factory=dict)
    accepted: int = 0
    delivered: int = 0

    def of(self, name: TopicPartition, offset: Offset) -> KnownRecord:
        return self.records.setdefault((name, offset), KnownRecord())

    def delivers(
        self, name: TopicPartition, offset: Offset, count: int, lock: Lock, now_ms: float
    ) -> None:
        """At the broker, when it gives the record to a member."""
        known, held = self.of(name, offset), self.of(name, offset).lock
        self.delivered += 1
        if held is not None and held.place == lock.place and now_ms < held.until_ms:
            self.fail(f"{name} {offset}: {lock.member} gets what {held.member} has locked")
        # A replaced leader does not know what newer leaders have done; newer ones know it all.
        if known.accepted_in is not None and lock.place.epoch >= known.accepted_in:
            self.fail(f"{name} {offset} is accepted, and delivered again to {lock.member}")
        if not 1 <= count <= self.limit:
            self.fail(f"{name} {offset}: delivery {count}, the limit is {self.limit}")
        known.lock = lock
        known.deliveries = max(known.deliveries, count)

    def acknowledged(
        self, name: TopicPartition, offset: Offset, kind: int, lock: Lock, now_ms: float
    ) -> None:
        """Called at the broker when an acknowledgement is durable."""
        known = self.of(name, offset)
        mine = known.lock == lock and now_ms < lock.until_ms
        if kind == ACCEPT and mine:
            if known.accepted_in is not None:
                self.fail(f"{name} {offset} is accepted twice")
            known.accepted_in = lock.place.epoch
            self.accepted += 1
        if known.lock == lock:
            known.lock = None

    def freed(self, member: str) -> None:
        """Its session is closed at the broker."""
        for known in self.records.values():
            if known.lock is not None and known.lock.member == member:
                known.lock = None

    def lost(self, name: TopicPartition, offset: Offset) -> str | None:
        """Why a record that counts as done was lost; None if it was not."""
        known = self.of(name, offset)
        if known.asked or known.deliveries >= self.limit:
            return None
        return f"{name} {offset} is lost: delivered {known.deliveries} times, never acknowledged"


class ShareClient:
    def __init__(self, run: ShareRun, number: int, host: int) -> None:
        self.run = run
        self.done = 0  # acknowledgements that are durable
        self._number = number
        self._lives = 0
        self._rng = run.world.rng(f"member-{number}")
        self._loop = sim_loop(run.world, host, run.world.rng(f"member-loop-{number}"))
        self._calls = ClientCalls(run.world, self._loop, self._rng, ANSWER_MS_MAX, LOST_ANSWERS)
        self._member = ""
        self._session: tuple[ShareNode, UUID, ShareSession] | None = None

    def start(self) -> None:
        self._loop.create_task(self._main())

    async def _main(self) -> None:
        while True:
            await asyncio.sleep(self._rng.randint(5, 50) / 1000)
            name = self._rng.choice(self.run.data)
            node = self.run.leader(name)
            if node is None:
                continue
            try:
                await self._work(node, name)
            except (KafkaError, TimeoutError):
                self._give_up()

    async def _work(self, node: ShareNode, name: TopicPartition) -> None:
        key = self.run.key(name)
        session = await self._opened(node)
        await self._call(node, lambda: self._assured(node, key))
        found = await self._call(node, lambda: self._fetch(node, name, session))
        if not found:
            return
        drawn = self._rng.random()
        if drawn < 0.06:
            self._give_up()  # it dies while it holds locks
        elif drawn < 0.15 and self.run.checker.lock_ms < FORGETS_BELOW_MS:
            if drawn < 0.1:
                return  # it forgets them: they come back when their locks time out
            await asyncio.sleep(self.run.checker.lock_ms / 1000 + 0.05)  # its answer is too late
        if self._session is not None:
            batches = self._answers(name, found)
            await self._call(node, lambda: self._acknowledge(node, name, found, batches))
            self.done += 1

    def _answers(
        self, name: TopicPartition, found: list[tuple[Offset, Lock]]
    ) -> list[Acknowledged]:
        batches = []
        for offset, _ in found:
            kind = self._rng.choices((ACCEPT, RELEASE, REJECT), (8, 3, 1))[0]
            if kind != RELEASE:
                self.run.checker.of(name, offset).asked = True
            batches.append(Acknowledged(offset, offset, [kind]))
        return batches

    async def _opened(self, node: ShareNode) -> ShareSession:
        held = self._session
        if held is not None and held[0] is node and held[1] == node.incarnation_id:
            return held[2]
        self._give_up()
        self._lives += 1
        self._member = f"m{self._number}.{self._lives}"
        assert node.shares is not None
        session = node.shares.open_session(GROUP, self._member)
        self._session = node, node.incarnation_id, session
        return session

    async def _assured(self, node: ShareNode, key: Key) -> None:
        """The state is initialized as the group coordinator does it, which may repeat it."""
        if key not in self.run.initialized or self._rng.random() < INITIALIZED_AGAIN:
            await node.persister.initialize(key, 1, 0)
            self.run.initialized.add(key)

    async def _fetch(
        self, node: ShareNode, name: TopicPartition, session: ShareSession
    ) -> list[tuple[Offset, Lock]]:
        shares, member = node.shares, session.member_id
        assert shares is not None
        wanted = Wanted(self._rng.choice((1, 3, 20)), 10, strict=self._rng.random() < 0.5)
        wait = Wait(FETCH_WAIT_MS, lambda: shares.sessions.is_open(session))
        found, errors = await shares.fetch(member, [self.run.key(name)], wanted, FETCH_BYTES, wait)
        if errors:
            raise next(iter(errors.values()))
        return [one for fetched in found for one in self._delivered(node, name, member, fetched)]

    def _delivered(
        self, node: ShareNode, name: TopicPartition, member: str, fetched: Fetched
    ) -> list[tuple[Offset, Lock]]:
        partition, checker = node.partition(name), self.run.checker
        assert partition is not None
        now_ms = node.clock.monotonic_ms()
        place = Place(node.node_id, node.incarnation_id, partition.leader_epoch)
        lock = Lock(place, member, now_ms + checker.lock_ms)
        there = {
            record.offset: (record.value or b"").decode()
            for _, batch in batches_of(fetched.records)
            for record in read_records(batch)
        }
        locked = []
        for part in fetched.acquired:
            for offset in range(part.first, part.last + 1):
                if offset not in there:
                    checker.fail(f"{name} {offset} is acquired, but not in the response")
                checker.delivers(name, offset, part.delivery_count, lock, now_ms)
                locked.append((offset, lock))
        return locked

    async def _acknowledge(
        self,
        node: ShareNode,
        name: TopicPartition,
        found: list[tuple[Offset, Lock]],
        batches: list[Acknowledged],
    ) -> None:
        assert node.shares is not None
        begun_ms = node.clock.monotonic_ms()
        member = found[0][1].member
        for (offset, lock), batch in zip(found, batches, strict=True):
            # A released record is available before its member gets the answer.
            if batch.types[0] == RELEASE and self.run.checker.of(name, offset).lock == lock:
                self.run.checker.of(name, offset).lock = None
        await node.shares.acknowledge(self.run.key(name), member, batches)
        for (offset, lock), batch in zip(found, batches, strict=True):
            self.run.checker.acknowledged(name, offset, batch.types[0], lock, begun_ms)

    def _give_up(self) -> None:
        """Closes the connection; the broker notices it a little later, if it still lives."""
        if self._session is None:
            return
        node, life, session = self._session
        self._session = None

        def closed() -> None:
            if node.shares is not None and node.incarnation_id == life:
                self.run.checker.freed(session.member_id)
                node.shares.close_session(session)

        self.run.world.after_on(
            node.node_id,
            self._rng.randint(0, 60),
            lambda: node.loop.call_soon(closed),
        )

    async def _call(self, node: ShareNode, request: Callable[[], Awaitable[T]]) -> T:
        return await self._calls.call(node, request, lambda: node.shares is not None)
