"""Ranges of bytes: equal to the bytes of the range, and copied only if they are small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol.byte_range import COPY_BYTES_MAX, ByteRange, whole

FRAME = bytes(range(256)) * 64


def test_a_small_part_is_a_copy_and_a_large_one_a_view() -> None:
    """Exactly COPY_BYTES_MAX is still small."""
    start = 100
    for size, kind in (
        (0, bytes),
        (1, bytes),
        (COPY_BYTES_MAX, bytes),
        (COPY_BYTES_MAX + 1, memoryview),
        (3 * COPY_BYTES_MAX, memoryview),
    ):
        part = ByteRange(FRAME, start, start + size)
        assert len(part) == size
        found = part.from_byte(0)
        assert type(found) is kind
        assert found == FRAME[start : start + size]


def test_the_size_of_the_requested_part_decides() -> None:
    part = ByteRange(FRAME, 7, 7 + COPY_BYTES_MAX + 10)
    assert isinstance(part.from_byte(9), memoryview)
    assert isinstance(part.from_byte(10), bytes)
    assert part.from_byte(10) == FRAME[17 : 17 + COPY_BYTES_MAX]


def test_a_view_is_one_of_the_frame_itself() -> None:
    found = ByteRange(FRAME, 1, len(FRAME)).from_byte(0)
    assert isinstance(found, memoryview)
    assert found.obj is FRAME


@given(st.integers(0, len(FRAME)), st.integers(0, len(FRAME)), st.integers(0, len(FRAME)))
def test_both_are_the_bytes_from_there_on(start: int, end: int, at: int) -> None:
    start, end = min(start, end), max(start, end)
    at = min(at, end - start)
    part = ByteRange(FRAME, start, end)
    assert len(part) == end - start
    assert part.from_byte(at) == FRAME[start:end][at:]


@pytest.mark.parametrize("size", [0, 5, COPY_BYTES_MAX + 1])
def test_the_whole_of_any_buffer(size: int) -> None:
    data = FRAME[:size]
    for buffer in (data, bytearray(data), memoryview(data)):
        part = whole(buffer)
        assert (part.start, part.end, len(part)) == (0, size, size)
        assert type(part.data) is bytes
        assert part.from_byte(0) == data
    assert whole(data).data is data, "bytes are not copied"


def test_a_range_made_from_a_buffer_is_a_copy() -> None:
    buffer = bytearray(b"abc")
    part = whole(buffer)
    buffer[0] = 0
    assert part.from_byte(0) == b"abc"
