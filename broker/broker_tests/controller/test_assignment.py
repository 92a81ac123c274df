"""Replica assignment: the examples of the seeds, and its invariants (R7)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.controller.assignment import alternate_racks, assign_replicas
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_testkit.work import Steps, grows_linearly


class FromStart(Random):
    """Starts at broker 0 with shift 0."""

    def randrange(self, *args: int) -> int:  # type: ignore[override]
        return 0


def no_racks(count: int) -> dict[Any, str | None]:
    return dict.fromkeys(range(count))


def test_the_example_of_the_docstring() -> None:
    assert assign_replicas(no_racks(5), 10, 3, FromStart()) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_racks_alternate_as_in_the_seeds() -> None:
    two: dict[Any, str] = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}
    assert alternate_racks(two) == [0, 3, 1, 4, 2, 5]
    uneven: dict[Any, str] = {0: "a", 1: "b", 2: "b", 3: "b"}
    assert alternate_racks(uneven) == [0, 1, 2, 3]


def test_racks_count_only_if_every_broker_has_one() -> None:
    racks: dict[Any, str | None] = {0: "a", 1: "a", 2: None}
    assert assign_replicas(racks, 3, 2, FromStart()) == [(0, 1), (1, 2), (2, 0)]


def test_the_example_of_the_seeds() -> None:
    """Six brokers, start at 4: partition 0 on 4 5 0, partition 1 on 5 0 1; with racks the
    first follower of a leader on 4 is on 2."""
    start_at_4 = Starts(4, 0)
    assert assign_replicas(no_racks(6), 6, 3, start_at_4)[:2] == [(4, 5, 0), (5, 0, 1)]
    racks: dict[Any, str | None] = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}
    assert assign_replicas(racks, 6, 2, Starts(3, 0))[0] == (4, 2)


class Starts(Random):
    """Gives these numbers, one after another."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def randrange(self, *args: int) -> int:  # type: ignore[override]
        return self.numbers.pop(0)


def test_less_than_a_round_is_spread_too() -> None:
    """Three of five brokers lead; the walk alone would give broker 2 three replicas."""
    found = assign_replicas(no_racks(5), 3, 3, FromStart())
    assert [replicas[0] for replicas in found] == [0, 1, 2]
    used = Counter(broker for replicas in found for broker in replicas)
    assert sorted(used.values()) == [1, 2, 2, 2, 2]


def test_new_partitions_go_to_the_brokers_with_the_fewest() -> None:
    old = assign_replicas(no_racks(3), 3, 3, FromStart())
    new = assign_replicas(no_racks(6), 3, 3, Random(1), old)
    assert sorted(replicas[0] for replicas in new) == [3, 4, 5]
    assert {broker for replicas in new for broker in replicas} == {3, 4, 5}


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(KafkaError) as caught:
        assign_replicas(no_racks(2), 1, 3, Random(1))
    assert caught.value.code is ErrorCode.invalid_replication_factor
    assert "target replication factor of 3 cannot be reached" in str(caught.value)


def counts(found: Iterable[Sequence[int]], brokers: Iterable[int]) -> tuple[list[int], list[int]]:
    leaders = Counter(replicas[0] for replicas in found)
    replicas = Counter(broker for replicas in found for broker in replicas)
    return [leaders[b] for b in brokers], [replicas[b] for b in brokers]


def assert_even(found: Iterable[Sequence[int]], brokers: Iterable[int], replicas_by: int) -> None:
    leaders, replicas = counts(found, brokers)
    assert max(leaders) - min(leaders) <= 1
    assert max(replicas) - min(replicas) <= replicas_by


@given(
    brokers=st.integers(1, 9),
    steps=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    replication_factor=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_distinct_brokers_and_even_counts(
    brokers: int, steps: list[int], replication_factor: int, seed: int
) -> None:
    """Also when the topic grows again and again; then seldom one replica more, because what
    exists is not moved."""
    replication_factor = min(brokers, replication_factor)
    rng = Random(seed)
    found: list[Any] = []
    for partitions in steps:
        new = assign_replicas(no_racks(brokers), partitions, replication_factor, rng, found)
        assert len(new) == partitions
        found = found + new if found else new
        assert all(len(set(replicas)) == replication_factor for replicas in new)
        assert_even(found, range(brokers), replicas_by=1 if found is new else 2)


@given(
    racks=st.integers(1, 4),
    per_rack=st.integers(1, 4),
    steps=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    replication_factor=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_replicas_spread_over_racks(
    racks: int, per_rack: int, steps: list[int], replication_factor: int, seed: int
) -> None:
    """No two replicas in one rack while there are enough racks, and equal racks are used evenly."""
    brokers: dict[Any, str | None] = {i: f"rack-{i // per_rack}" for i in range(racks * per_rack)}
    replication_factor = min(replication_factor, len(brokers))
    rng = Random(seed)
    found: list[Any] = []
    for partitions in steps:
        found += assign_replicas(brokers, partitions, replication_factor, rng, found)
        for replicas in found:
            assert len(set(replicas)) == replication_factor
            assert len({brokers[b] for b in replicas}) == min(racks, replication_factor)
        assert_even(found, brokers, replicas_by=1 if len(found) == steps[0] else 2)


@given(
    racks=st.dictionaries(st.integers(0, 9), st.sampled_from("abc"), min_size=1, max_size=10),
    partitions=st.integers(1, 40),
    replication_factor=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_racks_of_any_size(
    racks: dict[BrokerId, str | None], partitions: int, replication_factor: int, seed: int
) -> None:
    """Leaders are even, and no rack has two replicas while another has none."""
    replication_factor = min(replication_factor, len(racks))
    found = assign_replicas(racks, partitions, replication_factor, Random(seed))
    for replicas in found:
        assert len(set(replicas)) == replication_factor
        spread = len({racks[b] for b in replicas})
        assert spread == min(len(set(racks.values())), replication_factor)
    leaders, _ = counts(found, racks)
    assert max(leaders) - min(leaders) <= 1


def test_placing_twice_as_many_partitions_is_twice_the_work() -> None:
    brokers: dict[Any, str | None] = {i: f"rack-{i % 3}" for i in range(30)}

    def steps(partitions: int) -> Steps:
        with Steps() as counted:
            old = assign_replicas(brokers, partitions, 3, Random(1))
            assign_replicas(brokers | {30: "rack-0"}, partitions, 3, Random(1), old)
        return counted

    grows_linearly(steps(600), steps(1_200))
