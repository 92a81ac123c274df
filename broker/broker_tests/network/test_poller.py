"""The epoll set of the server: what it tells, what it does not, and that a bug hurts one only."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import ClassVar

import pytest

from odradek_broker.network.poller import READ, WRITE, Poller


class End:
    """One end of a socket pair, watched; remembers what it was told."""

    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, poller: Poller, events: int = READ) -> None:
        self.sock, self.other = socket.socketpair()
        self.opened.extend((self.sock, self.other))
        self.sock.setblocking(False)
        self.poller = poller
        self.told: list[str] = []
        self.fails = False
        poller.watch(self.sock.fileno(), events, self)

    def on_readable(self) -> None:
        self.told.append("readable")
        self.sock.recv(100)
        if self.fails:
            raise RuntimeError("planted")

    def flush(self) -> None:
        self.told.append("writable")
        self.poller.watch(self.sock.fileno(), READ, self)

    def close(self, reason: str) -> None:
        self.told.append(reason)
        self.poller.watch(self.sock.fileno(), 0, self)
        self.sock.close()


def in_a_loop(story: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @wraps(story)
    def test(**fixtures: object) -> None:
        try:
            asyncio.run(story(**fixtures))
        finally:
            while End.opened:
                End.opened.pop().close()

    return test


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@in_a_loop
async def test_all_that_is_ready_is_served_in_one_pass_and_settled_once() -> None:
    settled: list[int] = []
    poller = Poller(asyncio.get_running_loop(), lambda: settled.append(1))
    ends = [End(poller) for _ in range(50)]
    for end in ends:
        end.other.send(b"x")
    await until(lambda: all(end.told for end in ends))
    assert [end.told for end in ends] == [["readable"]] * 50
    assert len(settled) == 1
    poller.close()


@in_a_loop
async def test_only_the_events_asked_for_are_told() -> None:
    poller = Poller(asyncio.get_running_loop(), lambda: None)
    silent, writer, both = End(poller), End(poller, WRITE), End(poller, READ | WRITE)
    poller.watch(silent.sock.fileno(), 0, silent)
    for end in (silent, both):
        end.other.send(b"x")
    await until(lambda: writer.told and len(both.told) == 2)
    assert (silent.told, writer.told) == ([], ["writable"])
    assert both.told == ["writable", "readable"]
    poller.watch(silent.sock.fileno(), READ, silent)
    await until(lambda: silent.told)
    assert silent.told == ["readable"]
    poller.close()


@in_a_loop
async def test_the_end_of_a_connection_reaches_who_only_writes() -> None:
    poller = Poller(asyncio.get_running_loop(), lambda: None)
    end = End(poller, WRITE)
    end.other.close()
    await until(lambda: end.told)
    assert end.told == ["writable"]
    poller.close()


@in_a_loop
async def test_a_bug_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    poller = Poller(asyncio.get_running_loop(), lambda: None)
    good, bad = End(poller), End(poller)
    bad.fails = True
    for end in (bad, good):
        end.other.send(b"x")
    await until(lambda: good.told and len(bad.told) == 2)
    assert (good.told, bad.told) == (["readable"], ["readable", "an error in the broker"])
    assert "planted" in caplog.text
    poller.close()
    poller.close()
