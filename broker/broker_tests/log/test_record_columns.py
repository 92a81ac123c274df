"""The cleaner reads and thins out batches as the plain `odradek_protocol.records` would."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_broker.log.record_columns import keep_records, read_columns
from odradek_protocol.errors import DecodeError
from odradek_protocol.records.record_batch import DELETE_HORIZON_BIT, read_header
from odradek_protocol.records.records import (
    BatchProducer,
    Record,
    build_batch,
    read_records,
    retain_records,
    uncompressed_records,
    view_records,
)

fields = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=300)
headers = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 70, 20_000]), min_size=1, max_size=8))
    offset = 1000
    records = []
    for step in steps:
        timestamp = draw(st.integers(0, 2**42))
        records.append(Record(offset, timestamp, draw(fields), draw(fields), draw(headers)))
        offset += step
    return build_batch(records, codec=draw(st.integers(0, 4)), producer=BatchProducer(3, -1, 5))


@given(batches())
def test_columns_equal_those_of_the_plain_reader(batch: bytes) -> None:
    header = read_header(batch)
    data = bytes(uncompressed_records(batch, header))
    columns = read_columns(data, header.record_count)
    views = list(view_records(data, header.record_count))
    assert columns.starts == [0, *(view.end for view in views)]
    assert columns.offset_deltas == [view.offset_delta for view in views]
    assert columns.keys == [view.key for view in views]
    assert columns.tombstones == [view.value_length < 0 for view in views]


@given(batches(), st.data(), st.none() | st.integers(0, 2**42))
def test_keeping_some_records_equals_the_plain_implementation(
    batch: bytes, data: st.DataObject, horizon_ms: int | None
) -> None:
    header = read_header(batch)
    records = bytes(uncompressed_records(batch, header))
    numbers = range(header.record_count)
    kept = sorted(data.draw(st.sets(st.sampled_from(numbers), min_size=1)))
    new = keep_records(
        header, records, read_columns(records, header.record_count).starts, kept, horizon_ms
    )
    views = list(view_records(records, header.record_count))
    plain = retain_records(header, records, [views[n] for n in kept], delete_horizon_ms=horizon_ms)
    assert new == plain

    before = list(read_records(batch))
    assert list(read_records(new)) == [before[number] for number in kept]
    new_header = read_header(new)
    assert new_header.max_timestamp == max(before[number].timestamp for number in kept)
    if horizon_ms is not None:
        assert new_header.attributes & DELETE_HORIZON_BIT
        assert new_header.base_timestamp == horizon_ms


@settings(max_examples=300)
@given(batches(), st.data())
def test_damage_is_an_error_or_harmless(batch: bytes, data: st.DataObject) -> None:
    """Never an exception of another kind, never a key from outside its record."""
    header = read_header(batch)
    records = bytearray(uncompressed_records(batch, header))
    at = data.draw(st.integers(0, len(records) - 1))
    records[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(records), len(records) - 1]))
    try:
        columns = read_columns(bytes(records[:end]), header.record_count)
    except DecodeError:
        return
    assert columns.starts == sorted(columns.starts)
    assert columns.starts[-1] == end
