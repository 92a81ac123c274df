"""Assignments of classic members: opaque bytes to the broker, the consumers' format to us."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol.client.admin.groups import read_assignment
from odradek_protocol.ids import TopicPartition

ORDERS = struct.pack(">hih6sIiii", 0, 1, 6, b"orders", 2, 4, 1, -1)


def test_an_assignment() -> None:
    assert read_assignment(ORDERS) == (TopicPartition("orders", 1), TopicPartition("orders", 4))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        ORDERS[:17],
        struct.pack(">hih", 0, 2**31 - 1, -2) * 3,  # negative lengths
        struct.pack(">hihi", 0, 1, 0, -1),
        struct.pack(">hih1sI", 0, 1, 1, b"\xff", 0),
    ],
)
def test_bytes_of_another_kind(data: bytes) -> None:
    assert read_assignment(data) == ()


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read_assignment(data)
