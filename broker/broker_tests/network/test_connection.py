"""Connections over real sockets: order of answers, back pressure, memory, bad frames, sendfile.

The handlers are made for the test; everything else is what the broker runs.
"""

import asyncio
import gc
import socket
import struct
import sys
import weakref
from functools import partial
from pathlib import Path
from random import Random
from typing import Never

import pytest

from broker_tests.network.bench import ECHO, HELD, METADATA, Bench, answer, frame, run, until
from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.handler import Access
from odradek_broker.log.types import FileRange
from odradek_broker.network import connection as connection_module
from odradek_broker.network.connection import SMALL_READ_BYTES
from odradek_broker.network.large_frame import FIRST_BUFFER_BYTES
from odradek_broker.network.outgoing import SENT_MAX
from odradek_broker.runtime.listeners import Listener
from odradek_protocol.error_codes import ErrorCode


def test_answers_keep_the_order_of_requests_whatever_finishes_first() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(frame(HELD, 1, b"a") + frame(ECHO, 2, b"b") + frame(HELD, 3, b"c"))
        await until(lambda: len(bench.held) == 2)
        bench.release(1)
        bench.release(0)
        assert [await answer(client) for _ in range(3)] == [(1, b"a"), (2, b"b"), (3, b"c")]

    run(story)


@pytest.mark.parametrize("step", [1, 3, 7, 4096])
def test_frames_may_arrive_in_any_pieces(step: int) -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        bodies = [b"", b"x" * 10, b"y" * 3000, b"z"]
        data = b"".join(frame(ECHO, i, body) for i, body in enumerate(bodies))
        for at in range(0, len(data), step):
            client.writer.write(data[at : at + step])
            await client.writer.drain()
        assert [await answer(client) for _ in bodies] == list(enumerate(bodies))

    run(story)


@pytest.mark.parametrize("over", [-5, -4, -1, 0, 1, 3, 4, 5, SMALL_READ_BYTES])
def test_frames_around_the_size_of_a_small_read(over: int) -> None:
    """One that ends just before the read, with it or after it; then small ones again."""

    async def story(bench: Bench) -> None:
        client = await bench.client()
        rng = Random(over)
        fitting = SMALL_READ_BYTES - len(frame(ECHO, 0))
        bodies = [rng.randbytes(size) for size in (fitting + over, 10, fitting, 300_000, 3)]
        client.writer.write(b"".join(frame(ECHO, i, body) for i, body in enumerate(bodies)))
        for i, body in enumerate(bodies):
            assert await answer(client) == (i, body)
        for i in range(3):
            client.writer.write(frame(ECHO, i, b"alone"))
            assert await answer(client) == (i, b"alone")

    run(story)


def test_large_frames_arrive_whole_and_in_order() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        rng = Random(3)
        bodies = [rng.randbytes(size) for size in (5_000_000, 10, 100_000, 65_000, 1_100_000)]
        for i, body in enumerate(bodies):
            client.writer.write(frame(ECHO, i, body))
        for i, body in enumerate(bodies):
            assert await answer(client) == (i, body)

    run(story)


@pytest.mark.parametrize(
    "size", [-1, 0, 7, 2**31 - 1, 104857601], ids=["negative", "zero", "tiny", "huge", "over"]
)
def test_a_frame_of_impossible_size_closes_the_connection(size: int) -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(struct.pack(">i", size) + b"xxxx")
        assert await client.reader.read() == b""
        assert bench.metrics.connections == 0

    run(story)


def test_a_large_length_prefix_without_its_bytes_takes_little_memory() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(struct.pack(">i", 100_000_000) + b"x" * 100)
        await until(lambda: any(c._frame is not None for c in bench.server.connections))
        (connection,) = bench.server.connections
        assert connection._frame is not None
        assert connection._frame.size == 100_000_000
        assert sys.getsizeof(connection._frame._buffer) < 2 * FIRST_BUFFER_BYTES

    run(story)


def test_unknown_apis_and_versions_close_the_connection() -> None:
    async def story(bench: Bench) -> None:
        for bad in (frame(77, 1), frame(ECHO, 1, version=10), frame(-5, 1), frame(9999, 1)):
            client = await bench.client()
            client.writer.write(bad)
            assert await client.reader.read() == b""

    run(story)


def test_an_answered_request_is_freed_without_the_garbage_collector() -> None:
    """Waiting fetches once were not: some thousand of them caused a pause of 50 ms."""

    class Waiting:
        def __init__(self, ctx: RequestContext) -> None:
            self.ctx = ctx
            ctx.on_disconnect = self.give_up

        def give_up(self) -> Never:
            raise AssertionError("it was answered")

    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(frame(HELD, 1, b"x"))
        await until(lambda: bool(bench.held))
        waiting = weakref.ref(Waiting(bench.held[0][0]))
        bench.release(0)
        bench.held.clear()
        gc.disable()
        try:
            assert await answer(client) == (1, b"x")
            await until(lambda: waiting() is None)
        finally:
            gc.enable()

    run(story)


def test_too_many_requests_in_flight_stop_reading_until_some_are_answered() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        number = connection_module.MAX_IN_FLIGHT + 20
        for i in range(number):
            client.writer.write(frame(HELD, i, b"%d" % i))
        await until(lambda: len(bench.held) >= connection_module.MAX_IN_FLIGHT)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(bench.held) == connection_module.MAX_IN_FLIGHT
        for i in range(number):
            await until(partial(bench.holds, i + 1))
            bench.release(i)
            assert await answer(client) == (i, b"%d" % i)

    run(story)


def test_request_memory_is_bounded_over_all_connections() -> None:
    async def story(bench: Bench) -> None:
        clients = [await bench.client() for _ in range(4)]
        for i, client in enumerate(clients):
            client.writer.write(frame(HELD, i, b"x" * 600_000))
        await until(lambda: len(bench.held) == 1)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(bench.held) == 1, "a second request does not fit into 1 MB"
        for i in range(4):
            await until(partial(bench.holds, i + 1))
            assert len(bench.held) == i + 1
            bench.release(i)
            # An answer holds its request's memory until it is sent, so it has to be read.
            number = bench.held[i][0].correlation_id
            assert (await answer(clients[number]))[0] == number

    run(story, queued_max_request_bytes=1_000_000, socket_request_max_bytes=1_000_000)


def test_an_awaited_request_is_not_overtaken() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        body = struct.pack(">i", 0)
        client.writer.write(frame(METADATA, 1, body) + frame(ECHO, 2) + frame(METADATA, 3, body))
        await until(lambda: len(bench.gates) == 1)
        client.writer.write(frame(ECHO, 4))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(bench.gates) == 1
        assert bench.metrics.request("Echo").versions == {}
        bench.gates[0].set_result(0)
        await until(lambda: len(bench.gates) == 2)
        bench.gates[1].set_result(0)
        assert [(await answer(client))[0] for _ in range(4)] == [1, 2, 3, 4]

    run(story)


def test_file_ranges_go_out_between_bytes_also_to_a_slow_reader(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        content = Random(5).randbytes(3_000_000)
        (tmp_path / "f").write_bytes(content)
        client = await bench.client()
        with (tmp_path / "f").open("rb") as file:
            client.writer.write(frame(HELD, 1) + frame(ECHO, 2, b"after"))
            await until(lambda: len(bench.held) == 1)
            head = struct.pack(">i", 1) + b"head"
            chunks: Chunks = [
                head,
                FileRange(file, 1000, 2_500_000),
                b"middle",
                FileRange(file, 0, 5),
            ]
            bench.held[0][0].respond(chunks, len(head) + 2_500_000 + 6 + 5)
            await until(lambda: any(c._writing for c in bench.server.connections))
            first = await answer(client)
            assert first == (1, b"head" + content[1000:2_501_000] + b"middle" + content[:5])
            assert await answer(client) == (2, b"after")

    run(story)


def test_a_response_of_many_parts_and_the_one_after_it(tmp_path: Path) -> None:
    """Like a fetch of thousands of partitions, of which parts are sent while others wait."""
    content = Random(6).randbytes(40_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    number = SENT_MAX * 3 + 5

    async def story(bench: Bench) -> None:
        client = await bench.client()
        with path.open("rb") as file:
            client.writer.write(frame(HELD, 1) + frame(ECHO, 2, b"x" * 100) + frame(ECHO, 3))
            await until(lambda: len(bench.held) == 1)
            chunks: list[bytes | FileRange] = [struct.pack(">i", 1)]
            expected = b""
            for part in range(number):
                chunks += [b"head %d" % part, FileRange(file, part, 20 + part)]
                expected += b"head %d" % part + content[part : 20 + 2 * part]
            bench.held[0][0].respond(chunks, 4 + len(expected))
            assert await answer(client) == (1, expected)
            assert await answer(client) == (2, b"x" * 100)
            assert await answer(client) == (3, b"")
        (connection,) = bench.server.connections
        assert connection.quiet

    run(story)


def test_a_client_that_goes_away_is_forgotten_and_its_waiting_request_cancelled() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(frame(HELD, 1))
        await until(lambda: len(bench.held) == 1)
        cancelled = []
        bench.held[0][0].on_disconnect = lambda: cancelled.append(True)
        bench.held.clear()
        client.writer.close()
        await until(lambda: bench.metrics.connections == 0)
        assert cancelled == [True]

    run(story)


def test_a_connection_keeps_nothing_alive_that_ends_with_it() -> None:
    """The attack: one connection opens a share session after the other, or asks for one instance
    id of client metrics after the other, and each of them stays until it is closed."""

    class Session:
        pass

    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(frame(HELD, 1))
        await until(lambda: bench.holds(1))
        ctx, _ = bench.held[0]
        closed: list[Session] = []
        kept, dropped = Session(), Session()
        for session in (kept, dropped, kept):
            ctx.when_closed(session, closed.append)
        gone = weakref.ref(dropped)
        del dropped, session
        assert gone() is None
        client.writer.close()
        await until(lambda: bool(closed))
        assert closed == [kept]
        late = Session()
        ctx.when_closed(late, closed.append)  # by a request that ended after its connection
        assert closed == [kept, late]

    run(story)


@pytest.mark.parametrize("error_code", [0, 31])
def test_only_a_request_that_was_accepted_puts_a_connection_before_others(error_code: int) -> None:
    """The attack: a client without rights sends heartbeats of brokers, which are refused (31), so
    that its connection is read before those of others."""

    async def story(bench: Bench) -> None:
        bench.server.dispatcher._handlers[METADATA].access = Access(urgent=True)
        client = await bench.client()
        client.writer.write(frame(METADATA, 1, struct.pack(">i", 0)))
        await until(lambda: bool(bench.gates))
        urgent = bench.loop.poller.urgent
        assert not urgent, "it is not known yet whether it is accepted"
        bench.gates[0].set_result(error_code)
        await answer(client)
        assert bool(urgent) is (error_code == 0)

    run(story)


@pytest.mark.parametrize("error_code", [0, ErrorCode.cluster_authorization_failed])
def test_quotas_apply_to_a_broker_request_that_was_refused(error_code: int) -> None:
    """The attack: a client without rights sends requests of brokers, which no quota limits."""

    async def story(bench: Bench) -> None:
        bench.server.dispatcher._handlers[METADATA].internal = True
        quotas = bench.server.dispatcher._broker.quotas
        quotas.apply({(("user", None),): {"request_percentage": 1e-9}})
        client = await bench.client()
        client.writer.write(frame(METADATA, 1, struct.pack(">i", 0)))
        await until(lambda: bool(bench.gates))
        (connection,) = bench.server.connections
        bench.gates[0].set_result(error_code)
        await answer(client)
        assert (connection._throttled is not None) is bool(error_code)

    run(story)


def test_limits_on_the_number_of_connections() -> None:
    async def story(bench: Bench) -> None:
        clients = [await bench.client() for _ in range(3)]
        assert await clients[2].reader.read() == b""
        clients[0].writer.close()
        await until(lambda: bench.metrics.connections == 1)
        again = await bench.client()
        again.writer.write(frame(ECHO, 9))
        assert await answer(again) == (9, b"")

    run(story, max_connections_per_ip=2)


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def story(bench: Bench) -> None:
        idle, busy = await bench.client(), await bench.client()
        busy.writer.write(frame(HELD, 1))
        await until(lambda: len(bench.held) == 1)
        for connection in bench.server.connections:
            connection.last_active_ms -= 10_000_000
        bench.server._close_idle()
        assert await idle.reader.read() == b""
        bench.release(0)
        assert await answer(busy) == (1, b"")

    run(story)


def test_a_taken_port_is_refused_when_binding() -> None:
    async def story(bench: Bench) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(OSError, match="in use"):
                bench.server.bind(Listener("X", "127.0.0.1", taken.getsockname()[1], "PLAINTEXT"))

    run(story)


def test_small_requests_are_served_while_large_ones_wait_for_memory() -> None:
    """Up to 68 KB of unanswered requests per connection, also pipelined; more waits."""

    async def story(bench: Bench) -> None:
        large = [await bench.client() for _ in range(3)]
        for i, client in enumerate(large):
            client.writer.write(frame(HELD, i, b"x" * 600_000))
        await until(lambda: bench.server.memory.waiting == 2)
        small = await bench.client()
        for i in range(6):
            small.writer.write(frame(HELD, 100 + i, b"y" * 11_000))
        await until(lambda: len(bench.held) == 7)
        small.writer.write(frame(HELD, 106, b"y" * 11_000))
        await until(lambda: bench.server.memory.waiting == 3)
        assert len(bench.held) == 7
        while len(bench.held) < 10 or any(ctx.chunks is None for ctx, _ in bench.held):
            for number, (ctx, _) in enumerate(bench.held):
                if ctx.chunks is None:
                    bench.release(number)
            await asyncio.sleep(0)
        assert [(await answer(small))[0] for _ in range(7)] == list(range(100, 107))

    run(story, queued_max_request_bytes=1_000_000, socket_request_max_bytes=1_000_000)


def test_a_request_that_does_not_decode_releases_its_memory() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.client()
        client.writer.write(frame(METADATA, 1, b"\x7f" * 300_000))
        assert await client.reader.read() == b""
        assert bench.server.memory.used_bytes == 0

    run(story)


def test_resets_are_not_logged_and_bad_frames_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(bench: Bench) -> None:
        for _ in range(20):
            client = await bench.client()
            client.writer.write(frame(ECHO, 1))
            assert await answer(client) == (1, b"")
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.close()
        await until(lambda: bench.metrics.connections == 0)
        assert bench.metrics.connections_closed == {"read failed": 20}
        for size in range(20):
            client = await bench.client()
            client.writer.write(struct.pack(">i", 2**31 - 1 - size))
            assert await client.reader.read() == b""
        assert bench.metrics.connections_closed["bad size"] == 20

    with caplog.at_level("INFO"):
        run(story)
    (record,) = caplog.records
    assert "closed: bad size: a request of 2147483647 bytes" in record.getMessage()
