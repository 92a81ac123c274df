"""The assignor of share groups: every partition has a member, and every member a partition."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from odradek_broker.group.share.assignor import assign

A, B = UUID(int=1), UUID(int=2)


def test_partitions_are_dealt_out_in_turn() -> None:
    topics = {"a": (A, frozenset(range(5)))}
    subscribed = frozenset(["a"])
    assert assign({"m": subscribed, "n": subscribed}, topics) == {
        "m": {A: frozenset([0, 2, 4])},
        "n": {A: frozenset([1, 3])},
    }
    two = {"a": (A, frozenset(range(2)))}
    found = assign(dict.fromkeys(("m", "n", "o"), subscribed), two)
    assert [sorted(found[member][A]) for member in ("m", "n", "o")] == [[0], [1], [0]]


@pytest.mark.parametrize("seed", range(50))
def test_every_partition_is_assigned_and_only_to_subscribers(seed: int) -> None:
    rng = random.Random(seed)
    topics = {
        "a": (A, frozenset(range(rng.randint(1, 6)))),
        "b": (B, frozenset(range(rng.randint(1, 6)))),
    }
    names = [frozenset(["a"]), frozenset(["b"]), frozenset(["a", "b"]), frozenset(["c", "a"])]
    members = {f"m{n}": rng.choice(names) for n in range(rng.randint(1, 8))}
    found = assign(members, topics)
    assert found.keys() == members.keys()
    for name, (topic_id, partitions) in topics.items():
        subscribers = [m for m, wanted in members.items() if name in wanted]
        covered = frozenset().union(*(found[m].get(topic_id, frozenset()) for m in members))
        assert covered == (partitions if subscribers else frozenset())
        for member in members:
            assert member in subscribers or topic_id not in found[member]
    for member, wanted in members.items():
        assert bool(found[member]) == bool(wanted & topics.keys())
