"""Routes requests about groups to the shard of the group.

Called by the handlers. A method returns the response, or raises KafkaError if the whole request is
refused; `coordinator/service.py` says how long it waits.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from odradek_broker.coordinator.result import Moment, Producer
from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.group import admin, offset_requests
from odradek_broker.group.classic_join import Join
from odradek_broker.group.classic_requests import heartbeat, join_group, leave_group, sync_group
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.metrics import GroupMetrics
from odradek_broker.group.offset_requests import CommitRequest, FetchedOffset
from odradek_broker.group.records import Key
from odradek_broker.group.shard import GroupShard
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

T = TypeVar("T")


class GroupService:
    def __init__(
        self,
        coordinator: CoordinatorService[GroupShard],
        settings: Settings,
        metrics: GroupMetrics,
    ) -> None:
        self.coordinator = coordinator
        self.metrics = metrics
        self._settings = settings

    def shards(self) -> Iterator[GroupShard]:
        """The loaded shards of this broker, for metrics."""
        return (shard for _, shard in self.coordinator.shards() if shard is not None)

    # --- members of classic groups --------------------------------------------------------------

    async def join(self, request: Join) -> Struct:
        _check_group_id(request.group_id)
        config = GroupConfig.of(self._settings)
        low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise KafkaError(ErrorCode.invalid_session_timeout)

        return await self._write(
            request.group_id, lambda shard, now: join_group(shard, now, request), parks=True
        )

    async def sync(self, request: Struct) -> Struct:
        _check_group_id(request.group_id)
        return await self._write(
            request.group_id, lambda shard, now: sync_group(shard, now, request), parks=True
        )

    async def heartbeat(self, request: Struct) -> ErrorCode:
        _check_group_id(request.group_id)
        return await self._write(
            request.group_id, lambda shard, now: heartbeat(shard, now, request)
        )

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """`members` are member ids and instance ids; an error code for each."""
        _check_group_id(group_id)
        return await self._write(
            group_id, lambda shard, now: leave_group(shard, now, group_id, members)
        )

    # --- offsets --------------------------------------------------------------------------------

    async def commit(
        self, request: CommitRequest, producer: Producer | None = None
    ) -> list[ErrorCode]:
        """An error code per offset; with a producer they are part of its transaction."""
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
        """The groups of all shards. COORDINATOR_LOAD_IN_PROGRESS if one is not loaded yet."""
        states = {state.lower() for state in states}
        types = {kind.lower() for kind in types}
        groups = []
        for index, _ in list(self.coordinator.shards()):
            try:
                groups += await self.coordinator.read(
                    index, lambda shard, _: admin.list_groups(shard, states, types)
                )
            except KafkaError as error:
                if error.code is not ErrorCode.not_coordinator:  # else the partition has just moved
                    raise
        return groups

    async def delete_group(self, group_id: str) -> None:
        await self._write(group_id, lambda shard, now: admin.delete(shard, now, group_id))

    async def _write(
        self,
        group_id: str,
        decide: "offset_requests.Decide[T]",
        producer: Producer | None = None,
        *,
        parks: bool = False,
    ) -> T:
        partition = self.coordinator.partition_of(group_id)
        return await self.coordinator.write(partition, decide, producer=producer, parks=parks)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
