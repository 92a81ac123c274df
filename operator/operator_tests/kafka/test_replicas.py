"""New places for replicas: never twice on a broker, in different racks, few moves, even load."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_operator.kafka.actions import Reassign
from odradek_operator.kafka.moves import level
from odradek_operator.kafka.observed import ObservedKafka
from odradek_operator.kafka.replicas import Load, choose_replicas, shares_rack
from odradek_testkit.work import Steps, grows_linearly
from operator_tests.worlds import cluster, spread

SIX = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}


def test_a_replica_that_leaves_is_replaced_in_its_rack_and_position() -> None:
    staying = {b: rack for b, rack in SIX.items() if b != 1}
    assert choose_replicas((0, 1, 2), 3, staying, Load(())) == (0, 4, 2)


def test_a_shared_rack_is_left_by_the_later_replica() -> None:
    assert choose_replicas((0, 3, 1), 3, SIX, Load(())) == (0, 2, 1)


def test_fewer_replicas_keep_the_first_ones_and_too_many_are_refused() -> None:
    assert choose_replicas((0, 1, 2), 2, SIX, Load(())) == (0, 1)
    assert choose_replicas((0, 1, 2), 7, SIX, Load(())) is None


brokers = st.dictionaries(st.integers(0, 12), st.sampled_from(["", "a", "b", "c"]), min_size=1)


@settings(max_examples=300, deadline=None)
@given(brokers, st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True),
       st.integers(1, 6))  # fmt: skip
def test_any_choice(racks: dict[int, str], current: list[int], count: int) -> None:
    chosen = choose_replicas(tuple(current), count, racks, Load(()))
    if count > len(racks):
        assert chosen is None
        return
    assert chosen is not None
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= racks.keys()
    if "" not in racks.values():
        assert not shares_rack(chosen, racks)
    if current[0] in racks and not shares_rack(current[:1], racks):
        assert chosen[0] == current[0], "the preferred leader stays"


def test_planning_for_twice_as_many_partitions_is_twice_the_work() -> None:
    """The slowest part of a pass, with a hundred brokers."""
    desired = cluster(brokers=100, rebalance="auto")
    live = frozenset(desired.brokers)

    def steps(count: int) -> Steps:
        partitions = tuple(spread("orders", count, range(90)))
        with Steps() as counted:
            (action,) = level(desired, ObservedKafka(partitions=partitions, live=live))
        assert isinstance(action, Reassign)
        assert len(action.moves) == 100
        return counted

    grows_linearly(steps(3_000), steps(6_000))
