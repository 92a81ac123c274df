"""Routes requests about streams groups to the shard of the group.

Called by the handlers StreamsGroupHeartbeat and StreamsGroupDescribe. `creating` and `failures` are
of the internal topics that the heartbeat handler creates.
"""

import asyncio

from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.group.shard import GroupShard
from odradek_broker.group.streams import requests
from odradek_broker.group.streams.topology import TopicInfo
from odradek_protocol.messages.struct import Struct

FAILURES_MAX = 1_000


class StreamsGroupService:
    def __init__(self, coordinator: CoordinatorService[GroupShard]) -> None:
        self._coordinator = coordinator
        self.creating: set[str] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        self._failures: dict[str, tuple[str, float]] = {}  # by topic: why, and until when it counts

    async def heartbeat(
        self, request: Struct, client_id: str, client_host: str
    ) -> tuple[Struct, tuple[TopicInfo, ...]]:
        """The response, and the internal topics that are missing."""
        decision = await self._coordinator.write(
            self._coordinator.partition_of(request.group_id),
            lambda shard, now: requests.group_heartbeat(
                shard, now, request, client_id, client_host
            ),
        )
        assert isinstance(decision.response, Struct)
        return decision.response, decision.missing

    async def describe(self, group_id: str) -> Struct:
        return await self._coordinator.read(
            self._coordinator.partition_of(group_id),
            lambda shard, _: requests.describe(shard, group_id),
        )

    # --- internal topics --------------------------------------------------------------------------

    def keep(self, task: "asyncio.Future[None]") -> None:
        """Until it is done; the event loop itself keeps tasks by weak references only."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def failed(self, topic: str, reason: str, until_ms: float) -> None:
        """The topic could not be created; it is not tried again before `until_ms`."""
        if len(self._failures) < FAILURES_MAX or topic in self._failures:
            self._failures[topic] = (reason, until_ms)

    def failure_of(self, topic: str, now_ms: float) -> str | None:
        found = self._failures.get(topic)
        if found is not None and found[1] <= now_ms:
            del self._failures[topic]
            return None
        return found[0] if found is not None else None
