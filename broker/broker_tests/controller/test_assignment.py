"""Who gets the replicas: the examples of the seeds, and what must hold always (R7)."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.controller.assignment import alternate_racks, assign_replicas
from odradek_broker.model.errors import ErrorCode, KafkaError


class FromStart(Random):
    """Starts at broker 0 with shift 0."""

    def randrange(self, *args: int) -> int:  # type: ignore[override]
        return 0


def no_racks(count: int) -> dict[int, str | None]:
    return dict.fromkeys(range(count))


def test_the_example_of_the_docstring():
    assert assign_replicas(no_racks(5), 10, 3, FromStart()) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_racks_alternate_as_in_the_seeds():
    assert alternate_racks({0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}) == [0, 3, 1, 4, 2, 5]
    assert alternate_racks({0: "a", 1: "b", 2: "b", 3: "b"}) == [0, 1, 2, 3]


def test_racks_count_only_if_every_broker_has_one():
    racks = {0: "a", 1: "a", 2: None}
    assert assign_replicas(racks, 3, 2, FromStart()) == [(0, 1), (1, 2), (2, 0)]


def test_new_partitions_of_a_topic_go_on_where_the_walk_was():
    at_once = assign_replicas(no_racks(3), 7, 2, FromStart())
    first = assign_replicas(no_racks(3), 3, 2, FromStart())
    then = assign_replicas(no_racks(3), 4, 2, FromStart(), first_partition=3)
    assert first + then == at_once


def test_more_replicas_than_brokers():
    with pytest.raises(KafkaError) as caught:
        assign_replicas(no_racks(2), 1, 3, Random(1))
    assert caught.value.code is ErrorCode.invalid_replication_factor
    assert "target replication factor of 3 cannot be reached" in str(caught.value)


@given(
    brokers=st.integers(1, 12),
    partitions=st.integers(1, 60),
    replication_factor=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_distinct_brokers_and_even_leaders(brokers, partitions, replication_factor, seed):
    replication_factor = min(brokers, replication_factor)
    found = assign_replicas(no_racks(brokers), partitions, replication_factor, Random(seed))
    assert len(found) == partitions
    assert all(len(set(replicas)) == replication_factor for replicas in found)
    leaders = Counter(replicas[0] for replicas in found)
    counts = [leaders[broker] for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1


@given(
    racks=st.integers(1, 4),
    per_rack=st.integers(1, 4),
    rounds=st.integers(1, 4),
    replication_factor=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_replicas_spread_over_racks(racks, per_rack, rounds, replication_factor, seed):
    """No two in one rack while there are racks enough, and even use of equal racks."""
    brokers = {i: f"rack-{i // per_rack}" for i in range(racks * per_rack)}
    replication_factor = min(replication_factor, len(brokers))
    partitions = rounds * len(brokers)
    found = assign_replicas(brokers, partitions, replication_factor, Random(seed))
    for replicas in found:
        assert len(set(replicas)) == replication_factor
        assert len({brokers[b] for b in replicas}) == min(racks, replication_factor)
    used = Counter(broker for replicas in found for broker in replicas)
    assert max(used.values()) - min(used[broker] for broker in brokers) <= 1
    leaders = Counter(replicas[0] for replicas in found)
    assert set(leaders.values()) == {rounds}
