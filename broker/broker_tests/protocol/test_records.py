"""Records in a batch: reading, building, thinning out."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol.errors import DecodeError
from odradek_protocol.records import compression
from odradek_protocol.records.control_records import control_key, control_type_of
from odradek_protocol.records.record_batch import (
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    crc_matches,
    read_header,
)
from odradek_protocol.records.records import (
    BatchProducer,
    Record,
    build_batch,
    check_record,
    encode_record,
    read_records,
    renumber_records,
    retain_records,
    seal_batch,
    uncompressed_records,
    view_records,
)

data = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.binary(max_size=10), data), max_size=3)
timestamps = st.integers(0, 2**45)
codecs = st.sampled_from(range(5))


@st.composite
def record_lists(draw: st.DrawFn, min_size: int = 1) -> list[Record]:
    """Records with rising offsets and gaps between them."""
    count = draw(st.integers(min_size, 8))
    gaps = draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count))
    base = draw(st.integers(0, 2**50))
    return [
        Record(base + offset, draw(timestamps), draw(data), draw(data), draw(headers))
        for offset in itertools.accumulate(gaps)
    ]


@given(record_lists(), codecs)
def test_a_built_batch_reads_back(records: list[Record], codec: int) -> None:
    batch = build_batch(records, codec=codec, producer=BatchProducer(7, 1, 3))
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(memoryview(batch), header.crc)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert header.record_count == len(records)
    assert list(read_records(batch)) == records


def test_the_example_of_the_docstring() -> None:
    batch = build_batch([Record(0, 5, None, b"a")])
    assert len(batch) == 69
    assert batch[61:].hex(" ") == "0e 00 00 00 01 02 61 00"


@given(record_lists(), codecs, st.none() | timestamps, st.randoms(use_true_random=False))
def test_retained_records_are_the_same_records(
    records: list[Record], codec: int, horizon: int | None, rng: object
) -> None:
    batch = build_batch(records, codec=codec, producer=BatchProducer(7, 1, 3))
    header = read_header(batch)
    plain = uncompressed_records(batch, header)
    views = list(view_records(plain, header.record_count))
    keep = [rng.random() < 0.6 for _ in records]  # type: ignore[attr-defined]
    kept = list(itertools.compress(views, keep))
    thin = retain_records(header, plain, kept, delete_horizon_ms=horizon)
    after = read_header(thin)
    assert crc_matches(memoryview(thin), after.crc)
    assert list(read_records(thin)) == list(itertools.compress(records, keep))
    unchanged = ("base_offset", "last_offset_delta", "producer_id", "producer_epoch")
    for name in (*unchanged, "base_sequence", "partition_leader_epoch"):
        assert getattr(after, name) == getattr(header, name)
    if kept:
        assert after.codec == codec
        assert after.max_timestamp == max(
            record.timestamp for record in itertools.compress(records, keep)
        )
        if horizon is not None:
            assert after.attributes & DELETE_HORIZON_BIT
            assert after.base_timestamp == horizon
    else:
        assert (after.record_count, after.codec) == (0, 0)
        assert after.max_timestamp == header.max_timestamp


def test_log_append_time_stays_when_records_go() -> None:
    records = [Record(0, 10, b"a", b"1"), Record(1, 20, b"b", b"2")]
    header = read_header(build_batch(records))
    header = header.replace(attributes=TIMESTAMP_TYPE_BIT, max_timestamp=99)
    plain = uncompressed_records(build_batch(records), read_header(build_batch(records)))
    batch = seal_batch(header, plain)
    thin = retain_records(header, plain, list(view_records(plain, 2))[:1])
    assert [record.timestamp for record in read_records(batch)] == [99, 99]
    assert [record.timestamp for record in read_records(thin)] == [99]


def test_record_views_have_the_fields_that_compaction_needs() -> None:
    records = [Record(5, 10, b"key", None), Record(7, 12, None, b"value"), Record(8, 11, b"", b"")]
    batch = build_batch(records)
    plain = bytes(uncompressed_records(batch, read_header(batch)))
    views = list(view_records(plain, 3))
    assert [view.offset_delta for view in views] == [0, 2, 3]
    assert [view.timestamp_delta for view in views] == [0, 2, 1]
    assert [view.key for view in views] == [b"key", None, b""]
    assert [view.value_length for view in views] == [-1, 5, 0]
    assert plain[views[1].value_at :][:5] == b"value"
    assert b"".join(plain[view.start : view.end] for view in views) == plain


def plain_records(count: int = 3) -> bytes:
    out = bytearray()
    for index in range(count):
        encode_record(out, index, index, b"k%d" % index, b"v" * 70, [(b"h", None)])
    return bytes(out)


def test_every_truncation_is_a_decode_error() -> None:
    plain = plain_records()
    header = read_header(build_batch([Record(index, 0, None, None) for index in range(3)]))
    for length in range(len(plain)):
        with pytest.raises(DecodeError):
            list(read_records(seal_batch(header, plain[:length])))
    with pytest.raises(DecodeError):
        list(read_records(seal_batch(header, plain + b"\0")))
    with pytest.raises(DecodeError):
        list(read_records(seal_batch(header.replace(record_count=4), plain)))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_garbage_is_a_decode_error_or_nothing(garbage: bytes, count: int) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)])).replace(record_count=count)
    with contextlib.suppress(DecodeError):
        list(read_records(seal_batch(header, garbage)))
    with contextlib.suppress(DecodeError, IndexError):
        check_record(garbage, 0, len(garbage))


def test_check_record_agrees_with_the_reader() -> None:
    plain = plain_records()
    at = 0
    for index, view in enumerate(view_records(plain, 3)):
        assert check_record(plain, at, len(plain)) == (view.end, index, index)
        at = view.end


def test_renumbering() -> None:
    plain = plain_records()
    assert renumber_records(plain, 3) is plain
    out = bytearray()
    for _ in range(3):
        encode_record(out, 9, 4, b"k", b"v", [(b"h", b"x")])
    views = list(view_records(renumber_records(out, 3), 3))
    assert [view.offset_delta for view in views] == [0, 1, 2]
    assert [view.timestamp_delta for view in views] == [4, 4, 4]


def test_the_key_of_a_control_record_says_its_type() -> None:
    assert control_type_of(control_key(6)) == 6
    for key in (None, b"", b"\0\0\0"):
        with pytest.raises(DecodeError):
            control_type_of(key)


def test_a_decompression_limit_can_be_set() -> None:
    batch = build_batch([Record(0, 0, None, b"x" * 5000)], codec=compression.ZSTD)
    with pytest.raises(DecodeError):
        list(read_records(batch, limit=1000))
    assert len(list(read_records(batch, limit=6000))) == 1
