"""Requests about groups, brought to the shard that has the group.

Called by the handlers. A method gives the answer, raises KafkaError if the request as a whole is
refused, and waits as long as `coordinator/service.py` does.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from odradek_broker.coordinator.result import Moment, Producer, Result, Ticket
from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.group import admin, classic_sync, offset_requests
from odradek_broker.group.classic_group import ClassicGroup, join_error
from odradek_broker.group.classic_join import Join, join
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.offset_requests import CommitRequest, FetchedOffset
from odradek_broker.group.records import Key
from odradek_broker.group.shard import GroupShard
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.runtime.settings import Settings
from odradek_broker.wire.struct import Struct

T = TypeVar("T")


class GroupService:
    def __init__(self, coordinator: CoordinatorService[GroupShard], settings: Settings) -> None:
        self.coordinator = coordinator
        self._settings = settings

    def shards(self) -> Iterator[GroupShard]:
        """Those in use on this broker; for metrics."""
        return (shard for _, shard in self.coordinator.shards() if shard is not None)

    # --- members of classic groups --------------------------------------------------------------

    async def join(self, request: Join) -> Struct:
        _check_group_id(request.group_id)
        config = GroupConfig.of(self._settings)
        low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise KafkaError(ErrorCode.invalid_session_timeout)

        def decide(shard: GroupShard, now: Moment) -> Result[Struct]:
            group = shard.groups.get(request.group_id)
            if group is None:
                if request.member_id:
                    error = join_error(request.member_id, ErrorCode.unknown_member_id)
                    return Result((), error)
                group = shard.groups[request.group_id] = ClassicGroup(request.group_id)
            if not isinstance(group, ClassicGroup):
                error = join_error(request.member_id, ErrorCode.inconsistent_group_protocol)
                return Result((), error)
            turn = shard.turn(now)
            answer = join(group, turn, request)
            shard.forget_if_unused(request.group_id)
            return turn.result(answer, volatile=True)

        partition = self.coordinator.partition_of(request.group_id)
        return await self.coordinator.write(partition, decide, parks=True)

    async def sync(self, request: Struct) -> Struct:
        _check_group_id(request.group_id)
        assignments = {one.member_id: one.assignment for one in request.assignments}

        def decide(shard: GroupShard, now: Moment) -> Result[Struct]:
            group = shard.classic(request.group_id, unknown=ErrorCode.unknown_member_id)
            turn = shard.turn(now)
            answer: Struct | Ticket = classic_sync.sync(
                group,
                turn,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                request.protocol_type,
                request.protocol_name,
                assignments,
            )
            return turn.result(answer, volatile=False)

        partition = self.coordinator.partition_of(request.group_id)
        return await self.coordinator.write(partition, decide, parks=True)

    async def heartbeat(self, request: Struct) -> ErrorCode:
        _check_group_id(request.group_id)

        def decide(shard: GroupShard, now: Moment) -> Result[ErrorCode]:
            group = shard.classic(request.group_id, unknown=ErrorCode.unknown_member_id)
            turn = shard.turn(now)
            error = classic_sync.heartbeat(
                group, turn, request.member_id, request.group_instance_id, request.generation_id
            )
            return turn.result(error, volatile=True)

        return await self._write(request.group_id, decide)

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """`members` are member ids and instance ids; a code for each."""
        _check_group_id(group_id)

        def decide(shard: GroupShard, now: Moment) -> Result[list[ErrorCode]]:
            group = shard.groups.get(group_id)
            if not isinstance(group, ClassicGroup):
                return Result((), [ErrorCode.unknown_member_id] * len(members))
            turn = shard.turn(now)
            codes = [
                classic_sync.leave(group, turn, member_id, instance_id)
                for member_id, instance_id in members
            ]
            shard.forget_if_unused(group_id)
            return turn.result(codes, volatile=True)

        return await self._write(group_id, decide)

    # --- offsets --------------------------------------------------------------------------------

    async def commit(
        self, request: CommitRequest, producer: Producer | None = None
    ) -> list[ErrorCode]:
        """A code for each offset; with a producer they are part of its transaction."""
        return await self._write(
            request.group_id,
            lambda shard, now: offset_requests.commit(shard, now, request),
            producer,
        )

    async def fetch_offsets(
        self,
        group_id: str,
        keys: Sequence[Key] | None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> list[FetchedOffset]:
        def look(shard: GroupShard, _: Moment) -> list[FetchedOffset]:
            return offset_requests.fetch(
                shard,
                group_id,
                keys,
                member_id=member_id,
                member_epoch=member_epoch,
                require_stable=require_stable,
            )

        return await self.coordinator.read(self.coordinator.partition_of(group_id), look)

    async def delete_offsets(self, group_id: str, keys: Sequence[Key]) -> Mapping[Key, ErrorCode]:
        _check_group_id(group_id)
        codes = await self._write(
            group_id, lambda shard, now: offset_requests.delete(shard, now, group_id, keys)
        )
        return dict(zip(keys, codes, strict=True))

    # --- for operators --------------------------------------------------------------------------

    async def describe(self, group_id: str, version: int) -> Struct:
        partition = self.coordinator.partition_of(group_id)
        return await self.coordinator.read(
            partition, lambda shard, _: admin.describe(shard, group_id, version)
        )

    async def list_groups(self, states: Collection[str], types: Collection[str]) -> list[Struct]:
        """Of all shards of this broker. COORDINATOR_LOAD_IN_PROGRESS if one is not loaded yet."""
        states = {state.lower() for state in states}
        types = {kind.lower() for kind in types}
        groups = []
        for index, _ in list(self.coordinator.shards()):
            try:
                groups += await self.coordinator.read(
                    index, lambda shard, _: admin.list_groups(shard, states, types)
                )
            except KafkaError as error:
                if error.code is not ErrorCode.not_coordinator:  # it has just moved
                    raise
        return groups

    async def delete_group(self, group_id: str) -> None:
        await self._write(group_id, lambda shard, now: admin.delete(shard, now, group_id))

    async def _write(
        self,
        group_id: str,
        decide: "offset_requests.Decide[T]",
        producer: Producer | None = None,
    ) -> T:
        partition = self.coordinator.partition_of(group_id)
        return await self.coordinator.write(partition, decide, producer=producer)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
