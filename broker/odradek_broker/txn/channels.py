"""`Batches` collects items for a broker while a request to it is in flight: one request per broker
at a time, however many transactions end at once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from odradek_protocol.ids import BrokerId

T = TypeVar("T")

# Items of one request, so that it stays far below the largest frame.
BATCH_MAX = 1000


class Batches(Generic[T]):
    def __init__(self, send: Callable[[BrokerId, list[T]], Awaitable[None]]) -> None:
        self._send = send
        self._queues: dict[BrokerId, list[T]] = defaultdict(list)
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}

    def put(self, broker_id: BrokerId, item: T) -> None:
        self._queues[broker_id].append(item)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.create_task(self._drain(broker_id))

    async def _drain(self, broker_id: BrokerId) -> None:
        try:
            queue = self._queues[broker_id]
            while queue:
                items = queue[:BATCH_MAX]
                del queue[:BATCH_MAX]
                await self._send(broker_id, items)
        finally:
            del self._tasks[broker_id]

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
