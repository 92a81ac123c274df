"""The header of records, by the bytes that Confluent's documentation gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_schemas import BadRecordError, Framed, frame, unframe
from odradek_schemas.wire import read_indexes, write_indexes


def test_the_header_is_a_zero_byte_and_the_id_in_big_endian() -> None:
    assert frame(0x01020304, b"body") == b"\x00\x01\x02\x03\x04body"
    assert unframe(b"\x00\xff\xff\xff\xff") == Framed(0xFFFFFFFF, b"")


@pytest.mark.parametrize(
    ("value", "why"),
    [(b"", "0 bytes"), (b"\0\0\0\1", "4 bytes"), (b'{"a":1}', "0x7b"), (b"\x80abcd", "0x80")],
)
def test_a_record_without_a_header_is_refused(value: bytes, why: str) -> None:
    with pytest.raises(BadRecordError, match=why):
        unframe(value)


@pytest.mark.parametrize(
    ("indexes", "written"),
    [([0], b"\0"), ([1], b"\2\2"), ([0, 0], b"\4\0\0"), ([0, 1], b"\4\0\2"),
     ([64], b"\2\x80\1"), ([2, 0, 300], b"\6\4\0\xd8\4")],
)  # fmt: skip
def test_the_path_to_a_protobuf_message(indexes: list[int], written: bytes) -> None:
    assert write_indexes(indexes) == written
    assert read_indexes(written + b"rest") == (indexes, b"rest")


def test_the_long_form_of_the_first_message_is_read_too() -> None:
    assert read_indexes(b"\2\0rest") == ([0], b"rest")


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=20), st.binary())
def test_every_path_comes_back(indexes: list[int], rest: bytes) -> None:
    assert read_indexes(write_indexes(indexes) + rest) == (indexes, rest)


@given(st.binary(max_size=12))
def test_garbage_is_refused_or_read_but_never_fails_otherwise(body: bytes) -> None:
    try:
        indexes, rest = read_indexes(body)
    except BadRecordError:
        return
    assert indexes
    assert body.endswith(rest)


@pytest.mark.parametrize("body", [b"", b"\4\0", b"\xff" * 9, b"\1", b"\xd0\x0f" + b"\0" * 2000])
def test_paths_that_no_writer_makes_are_refused(body: bytes) -> None:
    with pytest.raises(BadRecordError):
        read_indexes(body)
