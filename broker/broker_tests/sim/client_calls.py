"""A client of the simulation calls a broker's service: requests are delayed, answers may be lost.

A call raises the broker's KafkaError, or TimeoutError if no answer came in time. After a timeout
the request may have been carried out, or may still be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from broker_tests.sim.coord_loop import SimLoop
from broker_tests.sim.coord_node import CoordNode
from broker_tests.sim.world import World
from odradek_protocol.error_codes import KafkaError

T = TypeVar("T")


@dataclass
class ClientCalls:
    world: World
    loop: SimLoop
    rng: Random
    answer_ms_max: int
    lost_answers: float
    duplicates: float | None = None  # None: no request is duplicated, and no number is drawn for it

    async def call(
        self,
        node: CoordNode,
        request: Callable[[], Awaitable[T]],
        serves: Callable[[], bool] = lambda: True,
    ) -> T:
        """`serves` is asked when the request arrives; where it is false, there is no answer."""
        world, answer = self.world, self.loop.create_future()

        async def serve() -> None:
            result: Any = None
            error: KafkaError | None = None
            try:
                result = await request()
            except KafkaError as refused:
                error = refused
            if self.rng.random() > self.lost_answers:
                world.after(self.rng.randint(0, 6), receive, result, error)

        def receive(result: object, error: KafkaError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        def arrive() -> None:
            if serves():
                node.loop.create_task(serve())

        world.after_on(node.node_id, self.rng.randint(0, 6), arrive)
        if self.duplicates is not None and self.rng.random() < self.duplicates:
            world.after_on(node.node_id, self.rng.randint(80, 700), arrive)
        async with asyncio.timeout(self.answer_ms_max / 1000):
            result: T = await answer
        return result
