"""Members of a simulated group: they join, get partitions, consume, commit; some are paused.

Records are only counted: partitions 0 to WORK-1 of a topic have any number of them. A member that
was paused for longer than its session continues with its old generation, in which its next commit
is sent. The invariants of the group (`GroupChecker`):

    exclusive     in one generation a partition has one owner
    fenced        a commit is accepted only if no member had heard of a later generation before
                  it was sent
    durable       what OffsetFetch tells is at least the last commit that was acknowledged before
                  it was asked
    not ahead     and at most what was consumed by then
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from broker_tests.sim.client_calls import ClientCalls
from broker_tests.sim.coord_loop import sim_loop
from odradek_broker.group.classic_join import Join
from odradek_broker.group.classic_member import Protocol
from odradek_broker.group.offset_requests import CommitRequest
from odradek_broker.group.service import GroupService
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

if TYPE_CHECKING:
    from broker_tests.sim.group_run import GroupRun

T = TypeVar("T")
GROUP, TOPIC_OF_WORK, WORK = "g", "work", 4
SESSION_MS, REBALANCE_MS, ANSWER_MS_MAX = 300, 700, 1_200
LOST_ANSWERS = 0.03
JOIN_VERSION = 9


class GroupChecker:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.generation = -1  # the newest that a member received
        self.commits = self.fetches = 0
        self.consumed = [0] * WORK
        self.committed = [0] * WORK  # acknowledged
        self._owners: dict[tuple[int, int], str] = {}

    def assigned(self, generation: int, member: str, partitions: list[int]) -> None:
        self.generation = max(self.generation, generation)
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self._fail(f"{partition} has two owners in {generation}: {owner}, {member}")

    def commit_accepted(
        self, generation: int, newest_when_sent: int, offsets: dict[int, int]
    ) -> None:
        self.commits += 1
        if generation < newest_when_sent:
            self._fail(
                f"a commit of generation {generation} was accepted, sent when {newest_when_sent} "
                "was known"
            )
        for partition, offset in offsets.items():
            self.committed[partition] = max(self.committed[partition], offset)

    def fetched(self, partition: int, offset: int, committed_when_asked: int) -> None:
        self.fetches += 1
        if offset < committed_when_asked:
            self._fail(
                f"the offset of {partition} is {offset}, and {committed_when_asked} was committed"
            )
        if offset > self.consumed[partition]:
            self._fail(
                f"the offset of {partition} is {offset}, "
                f"and {self.consumed[partition]} were consumed"
            )


class MemberError(Exception):
    """The member has to join again; `forgotten`: as a new one."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.forgotten = code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id)


class Member:
    def __init__(self, run: GroupRun, number: int, host: int) -> None:
        self.run = run
        self.checker = run.checker
        self.rounds = 0  # generations in which it had its partitions
        self._rng = run.world.rng(f"member-{number}")
        self._loop = sim_loop(run.world, host, run.world.rng(f"member-loop-{number}"))
        self._calls = ClientCalls(run.world, self._loop, self._rng, ANSWER_MS_MAX, LOST_ANSWERS)
        self._id = ""
        self._generation = -1
        self._positions: dict[int, int] = {}

    def start(self) -> None:
        self._loop.create_task(self._main())

    async def _main(self) -> None:
        while True:
            await asyncio.sleep(self._rng.randint(5, 50) / 1000)
            if self.run.resting:
                continue
            try:
                await self._join()
                await self._begin()
                while not self.run.resting:
                    await self._work()
                await self._leave()
            except MemberError as error:
                if error.forgotten:
                    self._id = ""

    # ------------------------------------------------------------ requests

    async def _ask(self, request: Callable[[GroupService], Awaitable[T]]) -> T:
        """At the coordinator. MemberError if it has other state than we have, or is unavailable."""
        found = self.run.coordinator()
        if found is None:
            await asyncio.sleep(0.03)
            raise MemberError(ErrorCode.coordinator_not_available)
        node, service = found
        try:
            return await self._calls.call(node, lambda: request(service))
        except TimeoutError:
            raise MemberError(ErrorCode.request_timed_out) from None
        except KafkaError as error:
            raise MemberError(error.code) from error

    async def _join(self) -> None:
        def request(service: GroupService) -> Awaitable[Struct]:
            protocols = [Protocol("own", b"")]
            return service.join(
                Join(GROUP, self._id, None, "c", "h", SESSION_MS, REBALANCE_MS, "consumer",
                     protocols, JOIN_VERSION)
            )  # fmt: skip

        joined = await self._ask(request)
        code = ErrorCode(joined.error_code)
        if code is ErrorCode.member_id_required:
            self._id = joined.member_id
            joined = await self._ask(request)
            code = ErrorCode(joined.error_code)
        if code is not ErrorCode.none:
            raise MemberError(code)
        self._id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == self._id:
            ids = sorted(member.member_id for member in joined.members)
            for number, member_id in enumerate(ids):
                mine = list(range(number, WORK, len(ids)))
                assignment = json.dumps(mine).encode()
                assignments.append(Struct(member_id=member_id, assignment=assignment))
        synced = await self._ask(
            lambda service: service.sync(
                Struct(
                    group_id=GROUP,
                    member_id=self._id,
                    group_instance_id=None,
                    generation_id=self._generation,
                    protocol_type="consumer",
                    protocol_name="own",
                    assignments=assignments,
                )
            )
        )
        code = ErrorCode(synced.error_code)
        if code is not ErrorCode.none:
            raise MemberError(code)
        self._positions = dict.fromkeys(json.loads(synced.assignment or b"[]"), 0)
        self.run.world.record(f"{self._id[-6:]} {self._generation} {list(self._positions)}")
        self.checker.assigned(self._generation, self._id, list(self._positions))

    async def _begin(self) -> None:
        before = list(self.checker.committed)
        keys = [(TOPIC_OF_WORK, partition) for partition in self._positions]
        for one in await self._ask(lambda service: service.fetch_offsets(GROUP, keys)):
            partition = one.key[1]
            offset = one.value.offset if one.value is not None else 0
            self.checker.fetched(partition, offset, before[partition])
            self._positions[partition] = offset
        self.rounds += 1

    async def _work(self) -> None:
        rng = self._rng
        asleep = rng.random() < 0.04
        await asyncio.sleep((rng.randint(400, 900) if asleep else rng.randint(20, 70)) / 1000)
        for partition in self._positions:
            self._positions[partition] += rng.randint(0, 3)
            consumed = max(self.checker.consumed[partition], self._positions[partition])
            self.checker.consumed[partition] = consumed
        if asleep or rng.random() < 0.5:
            await self._commit()
        code = await self._ask(
            lambda service: service.heartbeat(
                Struct(
                    group_id=GROUP,
                    member_id=self._id,
                    group_instance_id=None,
                    generation_id=self._generation,
                )
            )
        )
        if code is not ErrorCode.none:
            raise MemberError(code)
        if rng.random() < 0.01:
            await self._leave()
            raise MemberError(ErrorCode.unknown_member_id)

    async def _commit(self) -> None:
        newest, offsets = self.checker.generation, dict(self._positions)
        generation = self._generation
        request = CommitRequest(
            GROUP,
            self._id,
            None,
            generation,
            [((TOPIC_OF_WORK, p), offset, -1, "") for p, offset in offsets.items()],
        )
        codes = await self._ask(lambda service: service.commit(request))
        if all(code is ErrorCode.none for code in codes):
            self.checker.commit_accepted(generation, newest, offsets)
        else:
            raise MemberError(next(code for code in codes if code is not ErrorCode.none))

    async def _leave(self) -> None:
        await self._ask(lambda service: service.leave(GROUP, [(self._id, None)]))
        self._id = ""
