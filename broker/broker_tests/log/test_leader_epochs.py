"""Leader epochs: the end offset of an epoch (KIP-101), also after truncations."""

import pytest

from odradek_broker.log.leader_epochs import LeaderEpochs, parse_leader_epochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(list(entries))


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    known = epochs((2, 10), (3, 40), (7, 55))
    end = 80
    assert known.end_offset_for(7, end) == (7, 80)
    assert known.end_offset_for(3, end) == (3, 55)
    assert known.end_offset_for(5, end) == (3, 55)  # the largest one below it
    assert known.end_offset_for(1, end) == (1, 10)  # before all of them: it ended where they begin
    assert known.end_offset_for(8, end) == (-1, -1)  # newer than all
    assert known.end_offset_for(-1, end) == (-1, -1)
    assert epochs().end_offset_for(0, end) == (-1, -1)


def test_an_assignment_drops_contradicting_epochs() -> None:
    known = epochs((2, 10), (3, 40))
    known.assign(3, 50)
    assert known.entries == [(2, 10), (3, 40)]
    known.assign(5, 60)
    assert known.entries == [(2, 10), (3, 40), (5, 60)]
    known.assign(4, 50)
    assert known.entries == [(2, 10), (3, 40), (4, 50)]
    known.assign(6, 5)
    assert known.entries == [(6, 5)]
    known.assign(-1, 70)
    assert known.entries == [(6, 5)]


def test_truncation_at_both_ends() -> None:
    known = epochs((2, 10), (3, 40), (7, 55))
    known.truncate_from_end(55)
    assert known.entries == [(2, 10), (3, 40)]
    known.truncate_from_start(20)
    assert known.entries == [(2, 20), (3, 40)]
    known.truncate_from_start(40)
    assert known.entries == [(3, 40)]
    known.truncate_from_start(60)
    assert known.entries == [(3, 60)]
    assert known.epoch_of(59) == -1
    assert known.epoch_of(60) == 3


def test_the_file_is_kafkas() -> None:
    known = epochs((0, 0), (3, 1520))
    assert known.encode() == b"0\n2\n0 0\n3 1520\n"
    assert parse_leader_epochs(known.encode()).entries == known.entries  # type: ignore[union-attr]
    assert parse_leader_epochs(b"0\n0\n").entries == []  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "data", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 x\n", b"0\n2\n3 0\n2 5\n", b"\xff\xfe", b"0"]
)
def test_a_damaged_file_is_noticed(data: bytes) -> None:
    assert parse_leader_epochs(data) is None
