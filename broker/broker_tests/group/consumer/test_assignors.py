"""The assignors uniform and range: random groups, and Kafka's own examples."""

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_broker.group.consumer.assignors import ASSIGNORS, MemberSpec
from odradek_broker.group.consumer.assignors.heterogeneous import LEVELLING_STEPS_MAX
from odradek_broker.group.consumer.member import Partitions
from odradek_protocol.ids import TopicId

TOPICS = [UUID(int=n) for n in range(1, 6)]
Assignment = dict[str, Partitions]


@st.composite
def groups(
    draw: st.DrawFn, same_topics: bool = False
) -> tuple[dict[str, MemberSpec], dict[Any, Any]]:
    counts = {topic: draw(st.integers(1, 7)) for topic in TOPICS}
    some = st.frozensets(st.sampled_from(TOPICS), max_size=len(TOPICS))
    common = draw(some)
    members = {}
    for number in range(draw(st.integers(1, 6))):
        topics = common if same_topics else draw(some)
        instance = draw(st.none() | st.just(f"i{9 - number}"))
        members[f"m{number}"] = MemberSpec(topics, instance_id=instance)
    return members, counts


def check_valid(
    members: Mapping[str, MemberSpec], counts: Mapping[Any, int], assigned: Assignment
) -> None:
    """Every partition of a subscribed topic has exactly one owner, which subscribes to it."""
    owners: dict[tuple[TopicId, int], str] = {}
    for member_id, partitions in assigned.items():
        for topic, numbers in partitions.items():
            assert topic in members[member_id].topics
            assert numbers, "topics without partitions are left out"
            for number in numbers:
                assert owners.setdefault((topic, number), member_id) == member_id
    wanted = {topic for spec in members.values() for topic in spec.topics}
    assert set(owners) == {(t, n) for t in wanted for n in range(counts[t])}


def sizes(assigned: Assignment) -> dict[str, int]:
    return {m: sum(len(numbers) for numbers in p.values()) for m, p in assigned.items()}


def with_targets(members: Mapping[str, MemberSpec], assigned: Assignment) -> dict[str, MemberSpec]:
    return {m: spec._replace(target=assigned.get(m, {})) for m, spec in members.items()}


@given(groups(), st.sampled_from(["uniform", "range"]))
def test_every_partition_has_one_owner_that_subscribes_to_it(
    group: tuple[Any, ...], name: str
) -> None:
    members, counts = group
    check_valid(members, counts, ASSIGNORS[name](members, counts))


@given(groups(same_topics=True), st.integers(0, 1 << 30))
def test_uniform_is_balanced_and_moves_only_what_it_must(group: tuple[Any, ...], seed: int) -> None:
    members, counts = group
    first = ASSIGNORS["uniform"](members, counts)
    assert max(sizes(first).values()) - min(sizes(first).values()) <= 1
    assert ASSIGNORS["uniform"](with_targets(members, first), counts) == first
    # A member leaves: the others keep their partitions.
    gone = Random(seed).choice(sorted(members))
    rest = {m: s for m, s in with_targets(members, first).items() if m != gone}
    second = ASSIGNORS["uniform"](rest, counts)
    check_valid(rest, counts, second)
    for member_id, partitions in second.items():
        for topic, numbers in first[member_id].items():
            assert numbers <= partitions[topic]
    # A member joins: it gets its share, and no other member gets a new partition.
    topics = members[gone].topics
    joined = {**with_targets(rest, second), "new": MemberSpec(topics)}
    third = ASSIGNORS["uniform"](joined, counts)
    check_valid(joined, counts, third)
    if sizes(third):
        assert max(sizes(third).values()) - min(sizes(third).values()) <= 1
    for member_id in rest:
        for topic, numbers in third[member_id].items():
            assert numbers <= second[member_id].get(topic, frozenset())


def smallest_cost(members: Mapping[str, MemberSpec], counts: Mapping[Any, int]) -> int:
    """By trying all: the least possible sum of squared sizes."""
    wanted = [(t, n) for t in counts for n in range(counts[t])]
    choices = [[m for m, s in members.items() if t in s.topics] for t, n in wanted]
    best = None
    for owners in product(*[c for c in choices if c]):
        cost = sum(owners.count(m) ** 2 for m in members)
        best = cost if best is None or cost < best else best
    return best or 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_uniform_with_different_subscriptions_is_as_even_as_can_be(data: st.DataObject) -> None:
    counts = {topic: data.draw(st.integers(1, 3)) for topic in TOPICS[:3]}
    some = st.frozensets(st.sampled_from(TOPICS[:3]))
    members = {f"m{n}": MemberSpec(data.draw(some)) for n in range(3)}
    assigned = ASSIGNORS["uniform"](members, counts)
    check_valid(members, counts, assigned)
    assert sum(n * n for n in sizes(assigned).values()) == smallest_cost(members, counts)
    assert ASSIGNORS["uniform"](with_targets(members, assigned), counts) == assigned


@given(groups(), st.integers(0, 1 << 30))
def test_uniform_stays_even_from_any_old_target(group: tuple[Any, ...], seed: int) -> None:
    """Also from invalid targets: two owners, deleted partitions and topics."""
    members, counts = group
    rng = Random(seed)
    old: Assignment = {
        m: {t: frozenset(rng.sample(range(9), 3)) for t in rng.sample(TOPICS, 2)} for m in members
    }
    members = with_targets(members, old)
    assigned = ASSIGNORS["uniform"](members, counts)
    check_valid(members, counts, assigned)
    load = sizes(assigned)
    for giver, partitions in assigned.items():
        for taker, spec in members.items():
            if partitions.keys() & spec.topics:
                assert load[giver] - load[taker] <= 1


def test_levelling_follows_paths_of_several_members() -> None:
    """a can only give to b, and b to c: a 3, b 2, c 1 becomes 2, 2, 2."""
    t, u = TOPICS[:2]
    members = {
        "a": MemberSpec(frozenset({t}), {t: frozenset({0, 1, 2})}),
        "b": MemberSpec(frozenset({t, u}), {u: frozenset({0, 1})}),
        "c": MemberSpec(frozenset({u}), {u: frozenset({2})}),
    }
    assigned = ASSIGNORS["uniform"](members, {t: 3, u: 3})
    assert sizes(assigned) == {"a": 2, "b": 2, "c": 2}


def test_a_large_group_is_levelled_within_bounds() -> None:
    """Half of 400 members held all; the work is bounded, the result valid."""
    rng = Random(7)
    topics = [UUID(int=n) for n in range(1, 101)]
    counts = dict.fromkeys(topics, 20)
    members = {}
    for n in range(400):
        mine = frozenset(rng.sample(topics, 10))
        target = {t: frozenset(range(20)) for t in mine} if n < 200 else {}
        members[f"m{n:03}"] = MemberSpec(mine, target)
    counts = {t: 20 for t in topics if any(t in s.topics for s in members.values())}
    check_valid(members, counts, ASSIGNORS["uniform"](members, counts))
    assert LEVELLING_STEPS_MAX >= 10_000


def test_range_co_partitions_topics_of_equal_size() -> None:
    t, u = TOPICS[:2]
    members = {m: MemberSpec(frozenset({t, u})) for m in "ab"}
    assert ASSIGNORS["range"](members, {t: 3, u: 3}) == {
        "a": {t: frozenset({0, 1}), u: frozenset({0, 1})},
        "b": {t: frozenset({2}), u: frozenset({2})},
    }


def test_range_orders_static_members_by_instance_and_first() -> None:
    (t,) = TOPICS[:1]
    topics = frozenset({t})
    members = {
        "a": MemberSpec(topics),
        "x": MemberSpec(topics, instance_id="2"),
        "y": MemberSpec(topics, instance_id="1"),
    }
    assert ASSIGNORS["range"](members, {t: 3}) == {
        "y": {t: frozenset({0})},
        "x": {t: frozenset({1})},
        "a": {t: frozenset({2})},
    }


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_more_members_than_partitions(name: str) -> None:
    (t,) = TOPICS[:1]
    members = {m: MemberSpec(frozenset({t})) for m in "abc"}
    assigned = ASSIGNORS[name](members, {t: 2})
    assert sorted(sizes(assigned).values()) == [0, 1, 1]


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_no_members_and_no_partitions(name: str) -> None:
    assert ASSIGNORS[name]({}, {}) == {}
    assert ASSIGNORS[name]({"a": MemberSpec(frozenset())}, {}) == {"a": {}}
