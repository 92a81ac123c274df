"""The poller under asyncio's loop: the order of callbacks, and no wait while work is due."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar, Never

import pytest

from odradek_broker.runtime.event_loop import EndOfPass, PollerLoop
from odradek_broker.runtime.poller import READABLE, WRITABLE, Pollable


def run(story: Callable[[PollerLoop], Awaitable[None]]) -> None:
    """`story(loop)` in the loop of a broker; a loop that sleeps too long fails here."""

    async def main() -> None:
        try:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, PollerLoop)
            await asyncio.wait_for(story(loop), 20)
        finally:
            while Pair.made:
                Pair.made.pop().close()

    with asyncio.Runner(loop_factory=PollerLoop) as runner:
        runner.run(main())


class Pair(Pollable):
    """One end of a pair of sockets, watched; the other is the test's."""

    made: ClassVar[list[Pair]] = []

    def __init__(self, loop: PollerLoop, on_events: Callable[[Pair], None] | None = None) -> None:
        self.poller = loop.poller
        self.sock, self.other = socket.socketpair()
        self.sock.setblocking(False)
        self.events = loop.create_future()
        self.on_events = on_events
        self.watch(READABLE)
        self.made.append(self)

    def close(self) -> None:
        if self.sock.fileno() >= 0:
            self.watch(0)
        self.sock.close()
        self.other.close()

    def watch(self, events: int) -> None:
        self.poller.watch(self.sock.fileno(), self, events)

    def on_ready(self, events: int) -> None:
        if self.on_events is not None:
            self.on_events(self)
        if not self.events.done():
            self.events.set_result(events)
        self.watch(0)


class TestPasses:
    def test_a_ready_socket_gets_its_callback(self) -> None:
        async def story(loop: PollerLoop) -> None:
            pair = Pair(loop)
            pair.other.send(b"x")
            assert await pair.events == READABLE

        run(story)

    def test_calls_for_the_end_of_a_pass_run_after_all_sockets_in_order(self) -> None:
        async def story(loop: PollerLoop) -> None:
            seen = []

            def ready(pair: Pair) -> None:
                seen.append("socket")
                loop.poller.call_soon(lambda: seen.append("end"))

            def last(pair: Pair) -> None:
                ready(pair)
                loop.poller.call_soon(lambda: loop.poller.call_soon(lambda: seen.append("added")))

            pairs = [Pair(loop, ready), Pair(loop, ready), Pair(loop, last)]
            for pair in pairs:
                pair.other.send(b"x")
            await asyncio.gather(*(pair.events for pair in pairs))
            assert seen == ["socket"] * 3 + ["end"] * 3 + ["added"]

        run(story)

    def test_calls_between_passes_do_not_wait_for_a_socket(self) -> None:
        async def story(loop: PollerLoop) -> None:
            future = loop.create_future()
            # Nothing else is ready and no timer is set: a loop that slept first would not wake.
            EndOfPass(loop).call_soon(lambda: future.set_result("done"))
            assert await future == "done"

        run(story)

    def test_a_failing_callback_does_not_delay_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story(loop: PollerLoop) -> None:
            def fail(pair: Pair) -> Never:
                pair.watch(0)
                raise RuntimeError("planted")

            def fail_at_the_end() -> Never:
                raise RuntimeError("planted too")

            bad, good = Pair(loop, fail), Pair(loop)
            loop.poller.call_soon(fail_at_the_end)
            bad.other.send(b"x")
            good.other.send(b"x")
            await good.events

        run(story)
        assert sum("this is a bug" in record.message for record in caplog.records) == 2

    def test_a_socket_that_was_closed_in_this_pass_is_not_called(self) -> None:
        async def story(loop: PollerLoop) -> None:
            called = []

            def close_the_other(pair: Pair) -> None:
                called.append(pair)
                for one in pairs:
                    if one is not pair:
                        one.close()

            pairs = [Pair(loop, close_the_other), Pair(loop, close_the_other)]
            for pair in pairs:
                pair.other.send(b"x")
            done, _ = await asyncio.wait(
                [pair.events for pair in pairs], return_when=asyncio.FIRST_COMPLETED
            )
            await asyncio.sleep(0)  # a pass in which the closed one would be called
            assert len(done) == len(called) == 1

        run(story)

    @pytest.mark.parametrize("events", [READABLE, WRITABLE])
    def test_a_peer_that_hangs_up_is_reported_for_every_kind_of_wait(self, events: int) -> None:
        async def story(loop: PollerLoop) -> None:
            pair = Pair(loop)
            pair.watch(0)
            pair.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            with suppress(BlockingIOError):  # until it is not writable any more
                while True:
                    pair.sock.send(bytes(4096))
            pair.watch(events)
            pair.other.close()
            assert await pair.events & ~events

        run(story)


class TestAsyncio:
    """Streams, threads, timers and watched files work with the poller, too."""

    def test_streams_threads_and_timers(self) -> None:
        async def story(loop: PollerLoop) -> None:
            async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(await reader.readexactly(5))
                writer.close()

            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            server.close()

            woken = asyncio.Event()
            threading.Timer(0.02, loop.call_soon_threadsafe, [woken.set]).start()
            await woken.wait()

            began = loop.time()
            later = loop.create_future()
            EndOfPass(loop).call_later(0.02, later.set_result, None)
            await later
            assert loop.time() - began >= 0.02
            assert await asyncio.to_thread(threading.get_ident) != threading.get_ident()

        run(story)

    def test_a_watched_file_that_is_refused(self) -> None:
        async def story(loop: PollerLoop) -> None:
            refused = socket.socket()
            refused.setblocking(False)
            free = socket.socket()
            free.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_connect(refused, free.getsockname())
            refused.close()
            free.close()

        run(story)
