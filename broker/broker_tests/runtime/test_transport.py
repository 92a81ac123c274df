"""Connections to other brokers over real sockets: pipelining, lost answers, back-off, bounds."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from odradek_broker.runtime import transport
from odradek_broker.runtime.transport import FrameConnection, PeerUnavailable


class Server:
    """Hands every frame it gets to the test, which answers by correlation id."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.connections = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await self.frames.put(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def next_id(self) -> tuple[int, bytes]:
        frame = await asyncio.wait_for(self.frames.get(), 10)
        return struct.unpack_from(">i", frame, 4)[0], frame[8:]

    def answer(self, correlation_id: int, body: bytes = b"", cut: int | None = None) -> None:
        data = struct.pack(">ii", 4 + len(body), correlation_id) + body
        self.writers[-1].write(data[:cut])

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.close()
        self.writers.clear()

    async def stop(self) -> None:
        self._server.close()
        self.hang_up()
        await asyncio.gather(*self.tasks)


def call(
    connection: FrameConnection, correlation_id: int, body: bytes = b"", timeout_ms: float = 10_000
) -> Any:
    header = struct.pack(">hhi", 1, 0, correlation_id)
    return connection.call_frame(correlation_id, (header, body), timeout_ms)


def run(story: Callable[[Server, FrameConnection], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server()
        await server.start()
        connection = FrameConnection("127.0.0.1", server.port, asyncio.get_running_loop())
        try:
            await asyncio.wait_for(story(server, connection), 30)
        finally:
            connection.close()
            await server.stop()

    asyncio.run(main())


def test_calls_are_pipelined_and_matched_by_their_id() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        assert not connection.connected
        answers = [call(connection, i, b"q%d" % i) for i in range(1, 101)]
        for i in range(1, 101):
            assert await server.next_id() == (i, b"q%d" % i)
        for i in range(1, 101):
            server.answer(i, b"a%d" % i)
        got = await asyncio.gather(*answers)
        assert [bytes(frame[4:]) for frame in got] == [b"a%d" % i for i in range(1, 101)]
        assert server.connections == 1

    run(story)


def test_large_frames_both_ways_and_in_pieces() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        body = bytes(range(256)) * 40_000
        answer = call(connection, 1, body)
        assert await server.next_id() == (1, body)
        small = call(connection, 2)
        await server.next_id()
        server.answer(1, body)
        server.answer(2, b"x" * (transport.SCRATCH_BYTES // 2 - 10))
        assert (await answer)[4:] == body
        assert len(await small) == transport.SCRATCH_BYTES // 2 - 6
        assert isinstance(answer.result(), bytearray)

    run(story)


def test_a_lost_connection_fails_pending_calls_and_the_next_call_reconnects() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        first = call(connection, 1)
        server.answer((await server.next_id())[0])
        await first
        waiting = [call(connection, 2), call(connection, 3)]
        await server.next_id()
        await server.next_id()
        server.hang_up()
        for answer in waiting:
            with pytest.raises(PeerUnavailable, match="closed by the other side"):
                await answer
        again = call(connection, 4)
        server.answer((await server.next_id())[0])
        await again
        assert server.connections == 2

    run(story)


def test_no_answer_in_time_closes_the_connection() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        first = call(connection, 1)
        server.answer((await server.next_id())[0])
        await first
        slow, other = call(connection, 2, timeout_ms=20), call(connection, 3)
        for answer in (slow, other):
            with pytest.raises(PeerUnavailable, match="no response within 20 ms"):
                await answer
        assert not connection.connected

    run(story)


def test_a_refused_connection_fails_at_once_and_is_retried_with_backoff() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        await server.stop()
        with pytest.raises(PeerUnavailable, match="cannot connect"):
            await call(connection, 1)
        with pytest.raises(PeerUnavailable, match="backing off"):
            await call(connection, 2)
        await server.start()
        for attempt in range(3, 1000):
            answer = call(connection, attempt)
            await asyncio.wait({answer}, timeout=0.05)
            if not answer.done():
                server.answer((await server.next_id())[0])
                await answer
                return
            with pytest.raises(PeerUnavailable):
                await answer

    run(story)


@pytest.mark.parametrize("answer", [(77, b""), None])
def test_an_invalid_answer_closes_the_connection(answer: tuple[int, bytes] | None) -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        asked = call(connection, 1)
        await server.next_id()
        if answer:
            server.answer(*answer)
        else:
            server.writers[-1].write(struct.pack(">i", 2**31 - 1))
        with pytest.raises(PeerUnavailable):
            await asked

    run(story)


def test_a_peer_that_reads_nothing_cannot_fill_our_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        monkeypatch.setattr(transport, "IN_FLIGHT_MAX", 3)
        calls = [call(connection, i) for i in range(1, 5)]
        with pytest.raises(PeerUnavailable, match="3 requests are pending"):
            await calls[3]
        for _ in range(3):
            server.answer((await server.next_id())[0])
        await asyncio.gather(*calls[:3])

    run(story)


def test_a_caller_that_went_away_is_not_answered() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        gone, stays = call(connection, 1), call(connection, 2)
        await server.next_id()
        gone.cancel()
        server.answer(1)
        server.answer(2, b"ok")
        assert (await stays)[4:] == b"ok"

    run(story)


def test_closing_fails_calls_before_and_after() -> None:
    async def story(server: Server, connection: FrameConnection) -> None:
        before = call(connection, 1)
        connection.close()
        for answer in (before, call(connection, 2)):
            with pytest.raises(PeerUnavailable, match="closed"):
                await answer

    run(story)
