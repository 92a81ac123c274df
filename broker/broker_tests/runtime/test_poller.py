"""A pass of the poller ends in time, and sockets that it did not reach are served next."""

import socket

import pytest

from odradek_broker.runtime import poller as module
from odradek_broker.runtime.poller import PASS_NS_MAX, READABLE, Pollable, Poller


class Client(Pollable):
    """Reads one byte per call, and advances the clock with each."""

    def __init__(self, name: str, served: list[str], clock: "Time") -> None:
        self.name = name
        self.here, self.there = socket.socketpair()
        self.here.setblocking(False)
        self.served = served
        self.clock = clock

    def on_ready(self, events: int) -> None:
        assert events & READABLE
        self.here.recv(1)
        self.served.append(self.name)
        self.clock.now += PASS_NS_MAX // 3


class Time:
    now = 1

    def now_ns(self) -> int:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(module, "clock", time)
    return time


def test_every_socket_gets_a_turn_and_other_brokers_first(time: Time) -> None:
    served: list[str] = []
    poller = Poller()
    clients = [Client(f"c{i}", served, time) for i in range(40)]
    for client in clients:
        poller.watch(client.here.fileno(), client, READABLE)
        client.there.send(b"x" * 100)
    poller.poll(0.0)
    first = len(served)
    assert 4 <= first < 40, "the pass ended before it came to all"
    broker = clients[39]
    poller.urgent.add(broker.here.fileno())
    poller.poll(0.0)
    assert served[first] == "c39"
    for _ in range(20):
        poller.poll(0.0)
    assert {*served} == {client.name for client in clients}, "nobody starves"
    for client in clients:
        poller.watch(client.here.fileno(), client, 0)
        client.here.close()
        client.there.close()
    assert not poller.urgent
    poller.epoll.close()


def test_events_of_other_descriptors_reach_asyncio_when_the_pass_ends_early(time: Time) -> None:
    served: list[str] = []
    poller = Poller()
    clients = [Client(f"c{i}", served, time) for i in range(20)]
    for client in clients:
        poller.watch(client.here.fileno(), client, READABLE)
        client.there.send(b"x")
    ours, theirs = socket.socketpair()
    poller.epoll.register(ours.fileno(), READABLE)
    theirs.send(b"x")
    assert (ours.fileno(), READABLE) in poller.poll(0.0)
    assert len(served) < 20
    for sock in (ours, theirs, *(c.here for c in clients), *(c.there for c in clients)):
        sock.close()
    poller.epoll.close()
