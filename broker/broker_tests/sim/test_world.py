"""The simulated world itself: time, hosts, connections."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker_tests.sim.faults import Fault, Injector, Kind, draw_schedule, shrink
from broker_tests.sim.network import Weather
from broker_tests.sim.world import Address, HostCrashedError, World


class Echo:
    """Answers "ping" with "pong"; records its messages."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world, self.node_id = world, node_id
        self.heard: list[Any] = []

    def start(self) -> None:
        self.heard.append("start")

    def handle(self, source: Address, message: object) -> None:
        self.heard.append(message)
        if message == "ping":
            self.world.reply(self.node_id, source, "pong")
        if message == "die":
            raise HostCrashedError

    def failed(self, target: int, message: object, refused: bool) -> None:
        self.heard.append(f"refused by {target}" if refused else f"broken to {target}")

    def disconnected(self, source: int) -> None:
        self.heard.append(f"hung up by {source}")

    def crash(self, rng: Random) -> None:
        self.heard.append("crash")

    def wipe(self, rng: Random) -> None:
        self.heard.append("wipe")


@pytest.fixture
def world() -> World:
    world = World(1)
    for node_id in (1, 2, 3):
        world.add(node_id, Echo(world, node_id))
        world.start(node_id)
    return world


def heard(world: World, node_id: int) -> list[Any]:
    node = world.hosts[node_id].node
    assert isinstance(node, Echo)
    return node.heard


def test_request_and_reply(world: World) -> None:
    world.send(1, 2, "ping")
    world.run_until(100)
    assert heard(world, 2) == ["start", "ping"]
    assert heard(world, 1) == ["start", "pong"]


def test_a_reply_reaches_only_the_life_that_asked(world: World) -> None:
    """1. ask; 2. crash and restart before the answer; 3. the new life does not get it."""
    world.network.weather = Weather(latency_min_ms=10, latency_max_ms=10)
    world.send(1, 2, "ping")
    world.after(5, world.crash, 1)
    world.after(6, world.start, 1)
    world.run_until(100)
    assert heard(world, 1) == ["start", "crash", "start"]


def test_a_paused_host_gets_its_messages_later_and_in_order(world: World) -> None:
    world.pause(2)
    world.send(1, 2, "a")
    world.run_until(50)
    world.send(1, 2, "b")
    world.after_on(2, 1, heard(world, 2).append, "timer")
    world.run_until(100)
    assert heard(world, 2) == ["start"]
    world.resume(2)
    assert heard(world, 2)[0:2] == ["start", "a"]
    assert sorted(heard(world, 2)[2:]) == ["b", "timer"]


def test_a_host_that_is_down_refuses_and_a_cut_link_is_silent(world: World) -> None:
    world.network.cut([(1, 3), (2, 1), (2, 3)])
    world.crash(2)
    world.network.repair([(2, 1)])
    world.send(1, 2, "ping")
    world.send(1, 3, "ping")
    world.run_until(100)
    assert heard(world, 1) == ["start", "refused by 2"]
    assert heard(world, 3) == ["start"]


def test_connections_break_with_the_process(world: World) -> None:
    """1. 1 asks 2, and 2 dies before it arrives; 2. both get an error, 3 only the end."""
    world.network.weather = Weather(latency_min_ms=10, latency_max_ms=10)
    world.send(1, 2, "ping")
    world.after(5, world.crash, 2)
    world.run_until(100)
    assert sorted(heard(world, 1)[1:]) == ["broken to 2", "hung up by 2"]
    assert heard(world, 3) == ["start", "hung up by 2"]


def test_a_connection_may_break_while_both_are_alive(world: World) -> None:
    world.network.weather = Weather(reset=1.0)
    world.send(1, 2, "ping")
    world.run_until(100)
    assert heard(world, 1)[1:] in (["refused by 2"], ["broken to 2"])
    assert heard(world, 2) == ["start", "hung up by 1"]


def test_cuts_work_one_way_and_are_counted(world: World) -> None:
    network = world.network
    network.cut([(1, 2)])
    network.cut([(1, 2)])
    network.repair([(1, 2)])
    assert network.is_cut(1, 2)
    assert not network.is_cut(2, 1)
    network.repair([(1, 2)])
    assert not network.is_cut(1, 2)


def test_a_process_that_dies_in_its_work_comes_back(world: World) -> None:
    world.send(1, 2, "die")
    world.run_until(100)
    assert heard(world, 2) == ["start", "die", "crash", "start"]
    assert world.hosts[2].life == 2


def test_schedule_is_drawn_from_the_seed_and_ends_in_time() -> None:
    one = draw_schedule(Random(5), (1, 2, 3), 10_000)
    assert one == draw_schedule(Random(5), (1, 2, 3), 10_000)
    assert one != draw_schedule(Random(6), (1, 2, 3), 10_000)
    assert all(fault.at_ms + fault.duration_ms <= 10_000 for fault in one)


@pytest.mark.parametrize("seed", range(20))
def test_after_the_schedule_everything_is_healed(world: World, seed: int) -> None:
    injector = Injector(world, lambda _: True, lambda: 1, Weather())
    injector.schedule(draw_schedule(Random(seed), (1, 2, 3), 5_000))
    world.run_until(5_000)
    injector.heal()
    for node_id in (1, 2, 3):
        assert world.hosts[node_id].up
        assert not world.hosts[node_id].paused
        assert not any(world.network.is_cut(node_id, other) for other in (1, 2, 3))


def test_shrink_finds_the_two_faults_that_matter() -> None:
    faults = tuple(Fault(Kind.CRASH, at, 1, (1,)) for at in range(40))
    culprits = {faults[7], faults[31]}
    assert set(shrink(faults, lambda some: culprits <= set(some))) == culprits
    assert shrink(faults, lambda _: True) == ()
