"""End-transaction markers: they are read back as built, and no other record is read as a marker."""

import pytest

from odradek_broker.log.control import build_marker, parse_marker
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_protocol.records.control_records import control_key
from odradek_protocol.records.record_batch import read_header
from odradek_protocol.records.records import BatchProducer, Record, build_batch, read_records


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_a_control_batch_of_its_producer(commit: bool) -> None:
    batch = build_marker(5, 2, EndTxnMarker(commit, 8), 77)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.base_sequence, header.producer_epoch) == (0, -1, 2)
    (record,) = read_records(batch)
    assert record.timestamp == 77
    assert parse_marker(batch) == EndTxnMarker(commit, 8)


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0", b""), (control_key(2), b""), (control_key(1), b"\0")]
)
def test_other_control_records_are_no_markers(key: bytes | None, value: bytes) -> None:
    record = Record(0, 0, key, value)
    producer = BatchProducer(5, 2)
    batch = build_batch([record], producer=producer, transactional=True, control=True)
    assert parse_marker(batch) is None
