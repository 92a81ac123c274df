"""How the links between nodes change: no node is ever without a way to any other one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_operator.kafka.actions import Restart, Wait
from odradek_operator.kafka.desired import DesiredCluster, Known
from odradek_operator.kafka.links import (
    CONTROLLERS,
    FURTHER_INTER_BROKER,
    INTER_BROKER,
    addresses,
    conflict,
)
from odradek_operator.kafka.make_plan import make_plan
from operator_tests.worlds import P, cluster, running

TLS = {"name": "clients", "port": 9095, "tls": True, "authentication": {"type": "scram-sha-512"}}
PLAIN = {"name": "plaintext", "port": 9092}
OTHER = {"name": "other", "port": 9096}
LISTENERS: tuple[list[dict[str, Any]], ...] = (
    [PLAIN],
    [PLAIN, TLS],
    [TLS],
    [OTHER],
    [OTHER, PLAIN],
)
Settings = dict[str, str]


class World:
    """Nodes that restart in any order, and a manifest that changes at any time."""

    def __init__(self, seed: int, engine: str, listeners: list[dict[str, Any]]) -> None:
        self.rng = random.Random(seed)
        self.spec: dict[str, Any] = {"engine": engine, "brokers": 3, "listeners": listeners}
        if engine == "apache" and self.rng.random() < 0.5:
            self.spec["controllers"] = {"replicas": 3}
        self.nodes: dict[int, Settings] = {}
        self.formation: tuple[int, ...] = ()
        made = self.desired()
        self.formation = made.formation
        self.nodes = {n: dict(node.settings) for n, node in made.nodes.items()}

    def desired(self) -> DesiredCluster:
        existing = {n: "abc"[n] for n in self.nodes if n < 1000}
        controllers = {n: "abc"[n % 10] for n in self.nodes if n >= 1000}
        known = Known(existing, {}, self.formation, "id", controllers, started_with=self.nodes)
        return cluster(known, **self.spec)

    def outdated(self) -> list[int]:
        return [n for n, one in self.desired().nodes.items() if self.nodes[n] != one.settings]

    def restart_one(self) -> bool:
        behind = self.outdated()
        if behind:
            node = self.rng.choice(behind)
            self.nodes[node] = dict(self.desired().nodes[node].settings)
            self.check()
        return bool(behind)

    def check(self) -> None:
        brokers = {n: s for n, s in self.nodes.items() if n < 1000}
        for node, one in brokers.items():
            uses = one.get(INTER_BROKER, "PLAINTEXT")
            for other, peer in brokers.items():
                assert uses in addresses(peer), f"{node} cannot reach {other} through {uses}"
                if self.spec["engine"] != "apache":
                    own = peer.get(INTER_BROKER, "PLAINTEXT")
                    further = peer.get(FURTHER_INTER_BROKER, "").split(",")
                    assert uses in (own, *further), f"{other} refuses {node} on {uses}"
        for node, one in self.nodes.items():
            if CONTROLLERS not in one:
                continue
            uses = one[CONTROLLERS].split(",")[0]
            for other in self.formation:
                assert uses in addresses(self.nodes[other]), f"{node} loses voter {other}"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    engine=st.sampled_from(["embedded", "apache"]),
    path=st.lists(st.tuples(st.sampled_from(range(len(LISTENERS))), st.integers(0, 9)),
                  min_size=2, max_size=5),
)  # fmt: skip
def test_every_node_reaches_every_other_one_at_every_moment(
    seed: int, engine: str, path: list[tuple[int, int]]
) -> None:
    """The manifest changes again before the last change is complete, any number of times."""
    world = World(seed, engine, LISTENERS[path[0][0]])
    for wanted, restarts in path[1:]:
        world.spec["listeners"] = LISTENERS[wanted]
        for _ in range(restarts):
            world.restart_one()
    rolls = 0
    while world.restart_one():
        rolls += 1
        assert rolls < 60, world.desired().links
    fresh = World(seed, engine, world.spec["listeners"])
    assert world.desired().links == fresh.desired().links, "as a cluster that was created so"
    for node, found in world.nodes.items():
        differing = {n for n in found if found[n] != fresh.nodes[node].get(n)}
        assert not differing, "the settings are those of a new cluster"


@pytest.mark.parametrize("engine", ["embedded", "apache"])
def test_three_steps_are_announced(engine: str) -> None:
    world = World(1, engine, [PLAIN])
    world.spec["listeners"] = [PLAIN, TLS]
    steps = []
    while world.outdated():
        links = world.desired().links
        steps.append((links.step, len(links.later)))
        while world.outdated() and world.desired().links.step == links.step:
            world.restart_one()
    assert [later for _, later in steps] == [2, 1, 0]
    assert [step.partition(":")[0] for step, _ in steps] == [
        f"step {n} of 3 to TLS between brokers" for n in (1, 2, 3)
    ]
    assert world.desired().links.step == ""


@pytest.mark.parametrize("engine", ["embedded", "apache"])
def test_what_changes_for_clients_is_announced_until_it_is_done(engine: str) -> None:
    world = World(1, engine, [PLAIN])
    assert world.desired().links.clients == ()
    world.spec |= {"listeners": [TLS], "security": "strict"}
    said = (
        "listener clients accepts clients with scram-sha-512, over SASL_SSL",
        "listener plaintext is closed; move its clients to clients first",
    )
    assert world.desired().links.clients == said
    steps: list[tuple[str, ...]] = []
    while world.outdated():
        if steps[-1:] != [now := world.desired().links.clients]:
            steps.append(now)
        world.restart_one()
    # Dedicated controllers may be restarted after the brokers, when nothing is left to say.
    assert [one for one in steps if one] == [said, said[1:]], "the old one is kept to the end"
    assert world.desired().links.clients == ()
    world.spec |= {"listeners": [PLAIN, TLS], "security": "open"}
    assert world.desired().links.clients == (
        "listener plaintext accepts clients without a login, over PLAINTEXT",
    )


def test_a_node_waits_until_the_quorum_knows_the_new_addresses() -> None:
    world = World(1, "embedded", [PLAIN])
    before = world.desired()
    world.spec["listeners"] = [PLAIN, TLS]
    seen = running(before, P("orders-0: 0 1 2 | 0 1 2"))
    (first, *later) = make_plan(world.desired(), seen)
    assert isinstance(first, Wait), "no voter has said how to reach it"
    assert "listener PLAINTEXT" in first.reason.message
    assert [one.reason.code for one in later] == ["LaterStep"] * 3
    assert seen.kafka is not None
    known = dict.fromkeys((0, 1, 2), frozenset({"PLAINTEXT"}))
    seen = replace(seen, kafka=replace(seen.kafka, voter_listeners=known))
    (restart, *_) = make_plan(world.desired(), seen)
    assert isinstance(restart, Restart)
    assert "step 1 of 3 to TLS between brokers" in restart.reason.message


def test_two_listeners_cannot_share_a_port_while_the_brokers_move() -> None:
    world = World(1, "embedded", [PLAIN])
    world.spec["listeners"] = [{**TLS, "port": 9092}]
    assert "listener clients cannot have port 9092 yet" in conflict(world.desired().spec)
    world.spec["listeners"] = [TLS]
    assert conflict(world.desired().spec) == ""
    assert "PLAINTEXT" in world.desired().brokers[0].settings["listeners"], "kept for the brokers"
