"""Broker ids alternate racks, never change their rack, and are never renumbered."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.kafka.placement import place_brokers, racks_in_use

ABC = ("a", "b", "c")


def test_ids_alternate_racks() -> None:
    assert place_brokers(6, ABC, {}).brokers == {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}


def test_without_racks_all_are_in_the_nameless_one() -> None:
    assert place_brokers(2, (), {}).brokers == {0: "", 1: ""}


def test_a_new_rack_gets_the_next_brokers() -> None:
    four = place_brokers(4, ("a", "b"), {}).brokers
    assert place_brokers(6, ABC, four).brokers == {**four, 4: "c", 5: "c"}


def test_scale_down_is_the_way_back() -> None:
    six = place_brokers(6, ABC, {}).brokers
    placed = place_brokers(4, ABC, six)
    assert placed.brokers == {0: "a", 1: "b", 2: "c", 3: "a"}
    assert placed.leaving == {4: "b", 5: "c"}


def test_a_rack_that_is_taken_out_is_replaced_before_it_goes() -> None:
    six = place_brokers(6, ABC, {}).brokers
    placed = place_brokers(6, ("a", "b"), six)
    assert placed.leaving == {2: "c", 5: "c"}
    assert {b: r for b, r in placed.brokers.items() if b not in six} == {6: "a", 7: "b"}


def test_kept_volumes_come_back_in_their_rack() -> None:
    three = place_brokers(3, ABC, {}).brokers
    placed = place_brokers(5, ABC, three, kept={3: "c", 4: "a"})
    assert placed.brokers == {**three, 4: "a", 5: "b"}  # 3 waits for a broker in rack c


def test_racks_with_unavailable_nodes_are_kept() -> None:
    assert racks_in_use((), ("b", "c"), {0: "a"}) == ("a", "b", "c")
    assert racks_in_use(("c", "a"), ("x",), {0: "b"}) == ("c", "a")
    assert racks_in_use((), (), {}) == ("",)


counts = st.lists(st.integers(1, 12), min_size=1, max_size=6)
racks = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True)


@given(st.lists(st.tuples(st.integers(1, 12), racks), min_size=1, max_size=6))
def test_any_sequence_of_changes(steps: list[tuple[int, list[str]]]) -> None:
    """Whatever the spec becomes, brokers keep their rack; racks are even among those that stay."""
    existing: dict[int, str] = {}
    for count, names in steps:
        placed = place_brokers(count, names, existing)
        assert len(placed.brokers) == count
        assert {**placed.brokers, **placed.leaving}.items() >= existing.items()
        assert not placed.brokers.keys() & placed.leaving.keys()
        assert set(placed.brokers.values()) <= set(names)
        existing = dict(placed.brokers)


@given(st.integers(1, 30), st.integers(1, 30))
def test_racks_stay_even(first: int, second: int) -> None:
    placed = place_brokers(second, ABC, place_brokers(first, ABC, {}).brokers)
    sizes = Counter(placed.brokers.values())
    assert max(sizes[r] for r in ABC) - min(sizes[r] for r in ABC) <= 1
