"""A simulated broker whose coordinators send requests to others (markers, state of share groups).

Requests between brokers go over the simulated network to the production handlers there; a request
without an answer raises `PeerUnavailable`, as over a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple

from broker_tests.sim.coord_node import CoordNode
from broker_tests.sim.sim_ports import SimClock
from broker_tests.sim.world import Address
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

CALL_MS_MAX = 400.0
WALL_CLOCK_BEGINS_MS = 1_700_000_000_000
WALL_CLOCK_SKEW_MS = 40
LATE_COPIES = 0.08


class Ask(NamedTuple):
    """A request between brokers."""

    number: int
    api_key: int
    request: Struct


class Said(NamedTuple):
    number: int
    response: Struct


class SkewedClock(SimClock):
    """Wall time that differs a little between brokers: transactions time out by it."""

    def __init__(self, node: AskingNode, rng: Random) -> None:
        super().__init__(node, rng)
        self._skew_ms = rng.randint(-WALL_CLOCK_SKEW_MS, WALL_CLOCK_SKEW_MS)

    def now_ms(self) -> int:
        return WALL_CLOCK_BEGINS_MS + self._node.world.now_ms + self._skew_ms


class SimCalls:
    """`coordinator.broker_calls.BrokerCalls` over the simulated network."""

    def __init__(self, node: AskingNode) -> None:
        self._node = node

    async def call(
        self, broker_id: BrokerId, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Struct:
        node = self._node
        if broker_id == node.node_id:
            return await node.local[api_key](request)
        number, future = node.ask(broker_id, api_key, request)
        try:
            async with asyncio.timeout(min(timeout_ms, CALL_MS_MAX) / 1000):
                return await future
        except TimeoutError:
            raise PeerUnavailable(f"broker {broker_id} does not answer") from None
        finally:
            node.asked.pop(number, None)

    def close(self) -> None: ...


class AskingNode(CoordNode):
    """`local` has the handlers of requests from other brokers, while this broker serves."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, serve=self._start_serving, **kwargs)
        self._late_rng = self.world.rng(f"late-{self.node_id}")
        self.clock = SkewedClock(self, self.world.rng(f"wall-clock-{self.node_id}"))
        self.asked: dict[int, asyncio.Future[Struct]] = {}
        self._asked_number = 0
        self.local: dict[int, Callable[[Struct], Awaitable[Struct]]] = {}

    def start(self) -> None:
        self.asked.clear()
        self.local = {}
        super().start()

    def _start_serving(self, _: CoordNode) -> None:
        self.loop.call_soon(self.serve_others)

    def serve_others(self) -> None:
        """Starts the coordinators of this life, and fills `local`."""
        raise NotImplementedError

    # ------------------------------------------------------------ between brokers

    def ask(
        self, broker_id: int, api_key: int, request: Struct
    ) -> tuple[int, asyncio.Future[Struct]]:
        self._asked_number += 1
        future: asyncio.Future[Struct] = self.loop.create_future()
        self.asked[self._asked_number] = future
        message = Ask(self._asked_number, api_key, request)
        self.world.send(self.node_id, broker_id, message)
        if self._late_rng.random() < LATE_COPIES:
            # As if it had been delayed in a socket for so long, and had been sent again.
            delay_ms = self._late_rng.randint(80, 900)
            self.world.after_on(
                self.node_id, delay_ms, self.world.send, self.node_id, broker_id, message
            )
        return self._asked_number, future

    def handle(self, source: Address, message: object) -> None:
        match message:
            case Ask():
                if self.local:
                    self.loop.create_task(self._answer_to(source, message))
            case Said(number, response):
                future = self.asked.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(response)
            case _:
                super().handle(source, message)

    async def _answer_to(self, source: Address, ask: Ask) -> None:
        response = await self.local[ask.api_key](ask.request)
        self.world.reply(self.node_id, source, Said(ask.number, response))

    def failed(self, target: int, message: object, refused: bool) -> None:
        if isinstance(message, Ask):
            future = self.asked.pop(message.number, None)
            if future is not None and not future.done():
                future.set_exception(PeerUnavailable(f"broker {target} is gone"))
        else:
            super().failed(target, message, refused)
