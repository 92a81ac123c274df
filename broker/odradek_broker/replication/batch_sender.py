"""Requests to the controller that many partitions share: one at a time, with pauses after errors.

Values that arrive while a request is under way wait for the next one; of two values for the same
partition the newer one goes out. A request has `PER_REQUEST` partitions at most, so that neither
this broker nor the controller is kept by thousands of them.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from odradek_broker.controller_client.channel import ControllerCalls
from odradek_broker.partition.partition import Partition

# An answer that takes longer is not waited for. Far below LOST_PROPOSAL_MS of
# partition/leader_state.py: a request that was given up is not that old.
TIMEOUT_MS = 2000.0
BACKOFF_MIN_SECONDS = 0.05
BACKOFF_MAX_SECONDS = 1.0
# Not more than the controller decides about on its loop (LARGE_PARTITIONS of its service.py).
PER_REQUEST = 200

V = TypeVar("V")
Key = tuple[bytes, int]  # topic id, partition
Batch = dict[Key, tuple[Partition, V]]


class BatchSender(ABC, Generic[V]):
    def __init__(self, channel: ControllerCalls) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._waiting: Batch[V] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = 0  # in a row

    def add(self, partition: Partition, value: V) -> None:
        key = (partition.topic_id, partition.topic_partition.partition)
        self._waiting[key] = (partition, value)
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def add_again(self, batch: Batch[V]) -> None:
        """It failed as a whole; values added since are newer."""
        self._waiting = {**batch, **self._waiting}

    def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                if self._failures:
                    pause = BACKOFF_MIN_SECONDS * 2 ** min(self._failures - 1, 10)
                    await asyncio.sleep(min(pause, BACKOFF_MAX_SECONDS))
                self._failures += 1  # reset on success
                if await self._send_all():
                    self._failures = 0
        finally:
            self._task = None

    async def _send_all(self) -> bool:
        """All that waits now, in as many requests as it takes."""
        went_well = True
        waiting = list(self._waiting)
        for at in range(0, len(waiting), PER_REQUEST):
            keys = waiting[at : at + PER_REQUEST]
            found = {key: self._waiting.pop(key) for key in keys if key in self._waiting}
            batch = {key: one for key, one in found.items() if self.still_wanted(*one)}
            if batch and not await self.send(batch):
                went_well = False
        return went_well

    @abstractmethod
    def still_wanted(self, partition: Partition, value: V) -> bool:
        """Whether it is worth sending now; metadata may have overtaken it."""

    @abstractmethod
    async def send(self, batch: Batch[V]) -> bool:
        """Send all of it in one request and deal with the answer. False: pause before the next."""
