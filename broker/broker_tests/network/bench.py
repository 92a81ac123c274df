"""A server in a test: handlers that answer at once or when the test says so, and its clients."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple

from broker_tests.bare_broker import bare_broker
from odradek_broker.handlers.api_table import ApiTable
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.handler import Handler
from odradek_broker.network.exchange import Exchange
from odradek_broker.network.server import Server
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.event_loop import PollerLoop
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.settings import Settings
from odradek_protocol.messages.struct import Struct

ECHO = 0  # answers at once with the request's body
HELD = 1  # answers when the test says so
METADATA = 3  # a decoded request with a handler that awaits


class Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Bench:
    """A server with test handlers, and clients for it."""

    def __init__(self, overrides: dict[str, str] | None = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PollerLoop)
        self.loop = loop
        self.metrics = Metrics()
        self.clients: list[asyncio.StreamWriter] = []
        self.held: list[tuple[Exchange, bytes]] = []
        self.gates: list[asyncio.Future[int]] = []  # of requests; the result is an error code
        apis = ApiTable(
            [
                self._handler(ECHO, "Echo", serve=self._echo),
                self._handler(HELD, "Held", serve=self._hold),
                self._handler(METADATA, "Metadata", handle=self._await_gate),
            ]
        )
        broker = bare_broker(
            node_id=1,
            cluster_id="test",
            settings=Settings({"log.dirs": "unused", **(overrides or {})}),
            clock=SystemClock(),
            rng=Random(0),
            metrics=self.metrics,
            serves_clients=True,
            apis=apis,
        )
        self.server = Server(broker, self.loop, self.loop.poller)
        self.address = self.server.bind(Listener("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT"))
        self.server.start_accepting()

    def _handler(self, key: int, name: str, **how: Any) -> Handler:
        return Handler(key, name, range(0, 10), self.metrics.request(name), **how)

    def _echo(self, ctx: RequestContext, frame: memoryview, body_at: int) -> None:
        body = struct.pack(">i", ctx.correlation_id) + bytes(frame[body_at:])
        ctx.respond([body], len(body))

    def _hold(self, ctx: RequestContext, frame: memoryview, body_at: int) -> None:
        assert isinstance(ctx, Exchange)
        self.held.append((ctx, bytes(frame[body_at:])))

    def holds(self, count: int) -> bool:
        """At least so many requests of HELD."""
        return len(self.held) >= count

    def release(self, number: int) -> None:
        ctx, body = self.held[number]
        answer = struct.pack(">i", ctx.correlation_id) + body
        ctx.respond([answer], len(answer))

    async def _await_gate(self, ctx: RequestContext, request: Struct) -> Struct:
        gate = self.loop.create_future()
        self.gates.append(gate)
        return Struct(brokers=[], topics=[], controller_id=7, error_code=await gate)

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection(*self.address)
        self.clients.append(writer)
        return Client(reader, writer)

    async def stop(self) -> None:
        self.server.stop_accepting()
        await self.server.drain(0.0)
        for writer in self.clients:
            writer.close()


def frame(key: int, correlation_id: int, body: bytes = b"", version: int = 0) -> bytes:
    payload = struct.pack(">hhih", key, version, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


async def answer(client: Client) -> tuple[int, bytes]:
    (size,) = struct.unpack(">i", await client.reader.readexactly(4))
    data = await client.reader.readexactly(size)
    return struct.unpack_from(">i", data)[0], data[4:]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):  # far longer than a loaded machine needs
        while not condition():
            await asyncio.sleep(0)


def run(story: Callable[[Bench], Awaitable[None]], **overrides: str | int) -> None:
    async def main() -> None:
        bench = Bench({k.replace("_", "."): str(v) for k, v in overrides.items()})
        try:
            await asyncio.wait_for(story(bench), 120)
        finally:
            await bench.stop()
            assert bench.server.memory.used_bytes == sum(
                len(body) + 10 for ctx, body in bench.held if ctx.chunks is None
            )

    with asyncio.Runner(loop_factory=PollerLoop) as runner:
        runner.run(main())
