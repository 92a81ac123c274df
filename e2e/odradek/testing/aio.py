"""`kafka.aio`: the calls of a Kafka that wait, for tests that run on an event loop.

    async with Kafka() as kafka:
        await kafka.aio.produce("orders", "a")
        assert await kafka.aio.read("orders", 1) == ["a"]

Each call runs in a thread, so the loop and the program under test go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from odradek.testing.records import Data, Expected, Records

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """The calls of `Kafka` that are coroutines here."""

    @property
    def produce(self) -> Callable[..., Records]: ...

    @property
    def read(self) -> Callable[..., Records]: ...

    @property
    def wait_for(self) -> Callable[..., None]: ...


class AsyncKafka:
    """The same Kafka with coroutines; `run` is for every other method."""

    def __init__(self, kafka: Blocking) -> None:
        self._kafka = kafka

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`await kafka.aio.run(kafka.topics.create, "orders", partitions=3)`."""
        return await asyncio.to_thread(call, *args, **kwargs)

    async def produce(
        self, topic: str, *values: Expected, key: Data = None, partition: int | None = None
    ) -> Records:
        return await asyncio.to_thread(
            self._kafka.produce, topic, *values, key=key, partition=partition
        )

    async def read(self, topic: str, n: int | None = None, **options: Any) -> Records:
        return await asyncio.to_thread(self._kafka.read, topic, n, **options)

    async def wait_for(self, group: str, **options: Any) -> None:
        await asyncio.to_thread(self._kafka.wait_for, group, **options)
