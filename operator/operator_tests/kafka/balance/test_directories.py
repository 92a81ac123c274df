"""Moves between the log directories of one broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.kafka.balance.directories import HOT, Directory, Placed, relocate
from odradek_protocol.ids import TopicPartition

DIRECTORIES = [Directory(b, path, 100.0) for b in (0, 1) for path in ("/a", "/b", "/c")]


def placed(sizes: list[tuple[int, str, int]]) -> list[Placed]:
    return [Placed(TopicPartition("t", n), *where) for n, where in enumerate(sizes)]


def test_a_removed_directory_is_emptied_within_its_broker() -> None:
    replicas = placed([(0, "/a", 30), (0, "/a", 20), (0, "/b", 10), (1, "/a", 50)])
    moves, problems = relocate(DIRECTORIES, replicas, frozenset({(0, "/a")}))
    assert [(m.partition.partition, m.to) for m in moves] == [(0, "/c"), (1, "/b")]
    assert not problems


def test_without_room_the_problem_names_the_replica() -> None:
    replicas = placed([(0, "/a", 30), (0, "/b", 90), (0, "/c", 90)])
    moves, problems = relocate(DIRECTORIES, replicas, frozenset({(0, "/a")}))
    assert not moves
    assert problems[0].message == ("t-0 cannot leave /a of broker 0: no other directory has room")


def test_an_unknown_directory_is_an_error() -> None:
    with pytest.raises(ValueError, match="broker 0 has no log directory /x"):
        relocate(DIRECTORIES, [], frozenset({(0, "/x")}))


@given(
    st.lists(
        st.tuples(st.sampled_from((0, 1)), st.sampled_from(("/a", "/b", "/c")), st.integers(0, 40)),
        max_size=20,
    )
)
def test_only_hot_directories_are_cooled_and_none_becomes_hot(
    sizes: list[tuple[int, str, int]],
) -> None:
    used = {(d.broker, d.path): 0.0 for d in DIRECTORIES}
    for broker, path, size in sizes:
        used[broker, path] += size
    hot = {where for where, size in used.items() if size > HOT * 100}
    moves, _ = relocate(DIRECTORIES, placed(sizes))
    for move in moves:
        assert (move.broker, move.src) in hot
        used[move.broker, move.src] -= move.size_bytes
        used[move.broker, move.to] += move.size_bytes
    assert {where for where, size in used.items() if size > HOT * 100} <= hot
