"""Validation of batches before they are appended.

The table of refused batches was sent to Apache Kafka 4.3.1 as well: it answered with the same
codes, except where a comment says otherwise.
"""

from dataclasses import replace
from struct import pack_into

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.log import record_walk
from odradek_broker.log.control import build_marker
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.log.record_walk import walk_records
from odradek_broker.log.validation import (
    RECORD_ERRORS_MAX,
    RecordsRejectedError,
    Validated,
    validate_for_append,
    validate_for_replica,
)
from odradek_broker.model.log_config import LONG_MAX, LogConfig, TimestampType
from odradek_protocol.byte_range import whole
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.records import compression
from odradek_protocol.records.record_batch import (
    CRC_FROM,
    HEADER,
    TIMESTAMP_TYPE_BIT,
    crc_matches,
    read_header,
)
from odradek_protocol.records.records import (
    Record,
    build_batch,
    encode_record,
    read_records,
    seal_batch,
    view_records,
)
from odradek_protocol.varint import Buffer

NOW = 1_700_000_000_000
HOUR = 3_600_000
PLAIN = LogConfig()
COMPACTED = LogConfig(cleanup_compact=True)
APPEND_TIME = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
RECENT_ONLY = LogConfig(timestamp_before_max_ms=1000)


def validate(
    batch: Buffer, config: LogConfig, now_ms: int, *, from_client: bool = True
) -> Validated:
    return validate_for_append(whole(batch), config, now_ms, from_client=from_client)


def appended(validated: Validated) -> bytes:
    """The bytes that go into the log, but for offset and epoch."""
    return bytes(validated.records.from_byte(0))


def good(count: int = 3, timestamp: int = NOW, codec: int = 0) -> bytearray:
    records = [Record(i, timestamp + i, b"k%d" % i, b"v%d" % i) for i in range(count)]
    return bytearray(build_batch(records, codec=codec))


def with_header(batch: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields and a right CRC."""
    HEADER.pack_into(batch, 0, *read_header(batch).replace(**fields).fields)
    pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def with_records(data: bytes, count: int, codec: int = 0) -> bytearray:
    """A batch with a right CRC around any bytes."""
    header = read_header(good(count)).replace(record_count=count, max_timestamp=NOW)
    batch = bytearray(seal_batch(header, data))
    return with_header(batch, attributes=codec)


def changed(batch: bytearray, at: int, value: int) -> bytearray:
    batch[at] = value
    return batch


def record(offset_delta: int = 0, timestamp_delta: int = 0) -> bytes:
    out = bytearray()
    encode_record(out, offset_delta, timestamp_delta, b"k", b"v")
    return bytes(out)


THREE = record(0) + record(1) + record(2)
MARKER = bytearray(build_marker(1, 0, EndTxnMarker(True, 0), NOW))

REFUSED = {
    "nothing": (bytearray(), "invalid_record"),
    "ten bytes": (bytearray(10), "invalid_record"),
    "cut short": (good()[:-1], "invalid_record"),
    "length 0": (bytearray(61), "corrupt_message"),
    "length 13": (changed(good(), 11, 13), "corrupt_message"),
    "length negative": (changed(good(), 8, 0xFF), "corrupt_message"),
    # Kafka: UNKNOWN_SERVER_ERROR
    "shorter than a header": (changed(good()[:30], 11, 18), "corrupt_message"),
    "zeros after the batch": (good() + bytes(20), "corrupt_message"),
    "two batches": (good() + good(), "invalid_record"),
    "magic 0": (changed(good(), 16, 0), "invalid_record"),
    "magic 1": (changed(good(), 16, 1), "invalid_record"),
    "magic 3": (changed(good(), 16, 3), "corrupt_message"),
    "magic -1": (changed(good(), 16, 0xFF), "corrupt_message"),
    "wrong CRC": (changed(good(), 40, 0xAA), "corrupt_message"),
    "base offset 5": (changed(good(), 7, 5), "invalid_record"),
    "too large": (
        bytearray(build_batch([Record(0, NOW, None, bytes(1_100_000))])),
        "message_too_large",
    ),
    "count too high": (with_header(good(), record_count=4, last_offset_delta=3), "invalid_record"),
    "count too low": (with_header(good(), record_count=2, last_offset_delta=1), "invalid_record"),
    "count 0": (with_header(good(), record_count=0, last_offset_delta=-1), "invalid_record"),
    "count -1": (with_header(good(), record_count=-1), "invalid_record"),
    "count against offsets": (with_header(good(), last_offset_delta=5), "invalid_record"),
    "control bit": (with_header(good(), attributes=0x20), "invalid_record"),
    "control batch": (MARKER, "invalid_record"),
    "no sequence": (with_header(good(), producer_id=5, producer_epoch=0), "invalid_record"),
    "codec 5": (with_header(good(), attributes=5), "invalid_record"),  # Kafka: UNKNOWN_SERVER_…
    "bytes after the records": (with_records(THREE + b"\0", 3), "invalid_record"),
    "a record missing": (with_records(record(0) + record(1), 3), "invalid_record"),
    "garbage records": (with_records(b"\xff" * 40, 3), "invalid_record"),  # Kafka: UNKNOWN_…
    "negative record length": (
        with_records(b"\x0d\0\0\0\x01\x02a\0" + record(1) + record(2), 3),
        "invalid_record",
    ),
    "value longer than its record": (with_records(b"\x0e\0\0\0\x01\x50a\0", 1), "invalid_record"),
    "negative header count": (with_records(b"\x0e\0\0\0\x01\x02a\x01", 1), "invalid_record"),
    "too many headers": (with_records(b"\x0e\0\0\0\x01\x02a\x7e", 1), "invalid_record"),
    "null header key": (with_records(b"\x12\0\0\0\x01\x02a\x02\x01\x01", 1), "invalid_record"),
    "far future": (good(timestamp=NOW + HOUR + 1), "invalid_timestamp"),
    "append time without a time": (
        with_header(good(1), attributes=8, base_timestamp=-1, max_timestamp=-1),
        "invalid_timestamp",
    ),
}


@pytest.mark.parametrize(("batch", "code"), REFUSED.values(), ids=REFUSED)
def test_refused_as_kafka_refuses_it(batch: bytearray, code: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate(batch, PLAIN, NOW)
    assert caught.value.code == ErrorCode[code]


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=compression.CODEC_NAMES[1:])
@pytest.mark.parametrize(
    "damage", ["garbage", "empty", "cut", "record missing", "record too many", "bad record"]
)
def test_damaged_compressed_batches_are_refused(codec: int, damage: str) -> None:
    """Kafka says INVALID_RECORD for wrong records, UNKNOWN_SERVER_ERROR for wrong streams."""
    data = {
        "garbage": b"\x01\x02no codec wrote this",
        "empty": b"",
        "cut": compression.compress(codec, THREE)[:-3],
        "record missing": compression.compress(codec, THREE[: len(record()) * 2]),
        "record too many": compression.compress(codec, THREE + record(3)),
        "bad record": compression.compress(codec, b"\x0e\0\0\0\x01\x50a\0" * 3),
    }[damage]
    with pytest.raises(KafkaError) as caught:
        validate(with_records(data, 3, codec), PLAIN, NOW)
    assert caught.value.code == ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [1, 3, 4], ids=["gzip", "lz4", "zstd"])
def test_a_bomb_inside_a_batch_is_refused(codec: int) -> None:
    """40 MB of a single record in a few kilobytes; snappy cannot shrink it below 1 MB."""
    out = bytearray()
    encode_record(out, 0, 0, None, bytes(40 * 1024 * 1024))
    batch = with_records(compression.compress(codec, out), 1, codec)
    with pytest.raises(KafkaError) as caught:
        validate(batch, PLAIN, NOW)
    assert caught.value.code == ErrorCode.message_too_large


def test_many_empty_records_in_a_small_batch_are_refused_at_once() -> None:
    """30 million zero-length records would keep the event loop busy for seconds."""
    count = 30_000_000
    data = compression.compress(compression.GZIP, bytes(count))
    batch = with_records(data, 3, compression.GZIP)
    with_header(batch, record_count=count, last_offset_delta=count - 1)
    with pytest.raises(KafkaError, match="fewer records"):
        validate(batch, PLAIN, NOW)


@pytest.mark.parametrize("length", [b"\x80\x00", b"\x80\x80\x00", b"\x8a\x00" + bytes(5)])
@pytest.mark.parametrize("more", [2, 20])
def test_a_length_of_more_bytes_than_it_needs_may_still_not_be_too_small(
    length: bytes, more: int
) -> None:
    """A record of 0 or 5 bytes between good ones."""
    rest = b"".join(record(2 + number) for number in range(1 + more))
    with pytest.raises(DecodeError, match="impossible length"):
        walk_records(whole(record(0) + length + rest), 3 + more)


@pytest.mark.parametrize("codec", range(5), ids=compression.CODEC_NAMES)
def test_a_good_batch_passes_untouched(codec: int) -> None:
    batch = good(codec=codec)
    given = whole(batch)
    validated = validate_for_append(given, PLAIN, NOW)
    assert validated.records is given, "not copied"
    assert appended(validated) == batch
    assert validated.headers == [read_header(batch)]
    assert validated.log_append_time_ms == -1


def test_less_than_a_batch_after_the_batch_is_dropped() -> None:
    assert appended(validate(good() + b"x", PLAIN, NOW)) == good()


def test_log_append_time_replaces_the_timestamps() -> None:
    given = whole(good())
    validated = validate_for_append(given, APPEND_TIME, NOW + 77)
    (header,) = validated.headers
    batch = appended(validated)
    assert validated.log_append_time_ms == NOW + 77
    assert header == read_header(batch), "what is appended is patched"
    assert header.attributes == TIMESTAMP_TYPE_BIT
    assert crc_matches(memoryview(batch), header.crc)
    assert [record.timestamp for record in read_records(batch)] == [NOW + 77] * 3
    assert given.data == good(), "what was given is left alone"


def test_a_producer_may_not_send_log_append_time_to_such_a_topic() -> None:
    with pytest.raises(KafkaError) as caught:
        validate(with_header(good(), attributes=8), APPEND_TIME, NOW)
    assert caught.value.code == ErrorCode.invalid_timestamp


def test_the_append_time_bit_is_cleared_for_a_create_time_topic() -> None:
    validated = validate(with_header(good(), attributes=8), PLAIN, NOW)
    assert validated.headers[0].attributes == 0
    assert appended(validated) == with_header(good(), max_timestamp=NOW + 2)


@pytest.mark.parametrize("claimed", [-1, 0, NOW - 5, NOW + 10**9])
def test_a_wrong_max_timestamp_is_put_right(claimed: int) -> None:
    """Its records rise and fall again, so that neither the first nor the last is the latest."""
    records = [Record(i, NOW + delta, None, b"v") for i, delta in enumerate([3, 9, 1])]
    batch = with_header(bytearray(build_batch(records)), max_timestamp=claimed)
    validated = validate(batch, PLAIN, NOW)
    assert validated.headers[0].max_timestamp == NOW + 9
    assert appended(validated) == build_batch(records)
    assert read_header(batch).max_timestamp == claimed, "what was given is left alone"


def test_timestamps_before_1970_count_as_none() -> None:
    (header,) = validate(good(timestamp=-1000), PLAIN, NOW).headers
    assert header.max_timestamp == -1


def test_old_timestamps_are_refused_where_the_topic_says_so() -> None:
    assert validate(good(timestamp=5), PLAIN, NOW)
    old = [Record(0, NOW, None, b""), Record(1, NOW - 5000, None, b""), Record(2, NOW, None, b"")]
    with pytest.raises(RecordsRejectedError) as caught:
        validate(build_batch(old), RECENT_ONLY, NOW)
    assert caught.value.code == ErrorCode.invalid_timestamp
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_a_record_without_a_timestamp_passes_any_limit() -> None:
    batch = bytearray(build_batch([Record(0, -1, None, b"x")]))
    assert validate(batch, RECENT_ONLY, NOW).headers[0].max_timestamp == -1


def test_timestamps_beyond_64_bits_are_refused() -> None:
    out = bytearray()
    encode_record(out, 0, LONG_MAX, None, b"x")
    batch = with_header(with_records(bytes(out), 1), base_timestamp=LONG_MAX)
    anything = LogConfig(timestamp_after_max_ms=LONG_MAX)
    with pytest.raises(KafkaError) as caught:
        validate(batch, anything, NOW)
    assert caught.value.code == ErrorCode.invalid_timestamp


@pytest.mark.parametrize("codec", [0, 4])
def test_a_compacted_topic_needs_keys(codec: int) -> None:
    assert validate(good(codec=codec), COMPACTED, NOW)
    records = [Record(0, NOW, b"", b"empty key"), Record(1, NOW, None, b"x")]
    records += [Record(2 + i, NOW, None, b"x") for i in range(2 * RECORD_ERRORS_MAX)]
    with pytest.raises(RecordsRejectedError) as caught:
        validate(build_batch(records, codec=codec), COMPACTED, NOW)
    assert caught.value.code == ErrorCode.invalid_record
    assert caught.value.record_errors[0][0] == 1
    assert len(caught.value.record_errors) == RECORD_ERRORS_MAX


@pytest.mark.parametrize("source", range(5), ids=compression.CODEC_NAMES)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_compression_type_wins(source: int, target: str) -> None:
    batch = good(50, codec=source)
    config = LogConfig(compression_type=target)
    validated = validate(batch, config, NOW)
    (header,) = validated.headers
    wanted = 0 if target == "uncompressed" else compression.CODEC_NAMES.index(target)
    assert header.codec == wanted
    written = appended(validated)
    assert header == read_header(written)
    assert crc_matches(memoryview(written), header.crc)
    assert list(read_records(written)) == list(read_records(good(50)))


def test_recompression_goes_with_log_append_time_and_the_size_limit() -> None:
    config = replace(APPEND_TIME, compression_type="uncompressed", max_message_bytes=2000)
    batch = good(20, codec=compression.ZSTD)
    validated = validate(batch, config, NOW + 5)
    assert {record.timestamp for record in read_records(appended(validated))} == {NOW + 5}
    with pytest.raises(KafkaError) as caught:
        validate(good(500, codec=compression.ZSTD), config, NOW)
    assert caught.value.code == ErrorCode.message_too_large


@pytest.mark.parametrize("codec", [0, 4])
def test_offsets_inside_a_batch_are_put_right(codec: int) -> None:
    """Kafka keeps wrong ones if uncompressed, and fails if compressed."""
    data = compression.compress(codec, record(7) * 3)
    validated = validate(with_records(data, 3, codec), PLAIN, NOW)
    assert [record.offset for record in read_records(appended(validated))] == [0, 1, 2]


def test_the_brokers_own_batches_are_taken_as_they_are() -> None:
    batches = bytes(MARKER + good())
    validated = validate(batches, PLAIN, NOW, from_client=False)
    assert validated.records.data is batches, "not copied"
    assert appended(validated) == batches
    assert [header.is_control for header in validated.headers] == [True, False]
    validated = validate(batches, APPEND_TIME, NOW, from_client=False)
    assert validated.log_append_time_ms == NOW
    written = appended(validated)
    at = 0
    for header, batch in zip(validated.headers, (MARKER, good()), strict=True):
        assert header.max_timestamp == NOW
        assert header.size == len(batch)
        assert header == read_header(written, at), "what is appended is patched"
        assert crc_matches(memoryview(written)[at : at + header.size], header.crc)
        at += header.size
    assert at == len(written)
    assert batches == MARKER + good(), "what was given is left alone"


def replicated(offset: int) -> bytearray:
    batch = good()
    pack_into(">q", batch, 0, offset)
    return batch


def test_a_follower_checks_crc_and_order() -> None:
    headers = validate_for_replica(replicated(10) + replicated(20) + MARKER[:0])
    assert [header.base_offset for header in headers] == [10, 20]
    assert validate_for_replica(b"") == []
    bad = [
        replicated(20) + replicated(10),
        replicated(10) + replicated(12),
        changed(replicated(10), 40, 0xAA),
        replicated(10)[:-1],
        changed(replicated(10), 16, 1),
        replicated(10) + b"x" * 5,
        bytearray(61),
    ]
    for batches in bad:
        with pytest.raises(KafkaError) as caught:
            validate_for_replica(batches)
        assert caught.value.code == ErrorCode.corrupt_message


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=30))
def test_the_walk_agrees_with_the_reader(sizes: list[int]) -> None:
    data = bytearray()
    for index, size in enumerate(sizes):
        encode_record(data, index, index * 3, None, bytes(size))
    edges = walk_records(whole(data), len(sizes))
    views = list(view_records(data, len(sizes)))
    assert edges == (views[0].timestamp_delta, views[-1].timestamp_delta, True)
    for count in (len(sizes) - 1, len(sizes) + 1):
        if count:
            with pytest.raises(DecodeError):
                walk_records(whole(data), count)


def one_by_one(data: bytearray, count: int) -> object:
    """The result of the walk when it takes no steps of several records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_walk, "RUN_MISSES", 0)
        return outcome(data, count)


def outcome(data: bytearray, count: int) -> object:
    try:
        return walk_records(whole(data), count)
    except DecodeError as error:
        return str(error)


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 80)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3),
    st.integers(-2, 2),
)
def test_steps_of_several_records_find_what_single_ones_find(
    runs: list[tuple[int, int]], changes: list[tuple[int, int]], more: int
) -> None:
    """Also where bytes were changed, or the count is wrong."""
    data = bytearray()
    sizes = [size for size, times in runs for _ in range(times)]
    for index, size in enumerate(sizes):
        encode_record(data, index, 0, None, bytes(size))
    for at, value in changes:
        data[at % len(data)] = value
    count = max(1, len(sizes) + more)
    assert outcome(data, count) == one_by_one(data, count)


def test_a_changed_length_in_a_run_of_equal_ones_is_found() -> None:
    data = bytearray()
    for index in range(60):  # all 108 bytes long, of which two are the length
        encode_record(data, index, 0, None, bytes(100))
    size = len(data) // 60
    assert walk_records(whole(data), 60) == (0, 0, True)
    for index in range(60):
        for at in (index * size, index * size + 1):
            changed = bytearray(data)
            changed[at] ^= 2
            with pytest.raises(DecodeError):
                walk_records(whole(changed), 60)


def test_the_walk_steps_over_records_of_every_length_of_length() -> None:
    """One byte up to 63, two up to 8,191, three up to a million, four beyond."""
    for size in (6, 56, 57, 63, 64, 8000, 8185, 8191, 8192, 1_048_570, 1_048_600):
        data = bytearray()
        encode_record(data, 0, 0, None, bytes(size))
        encode_record(data, 1, 0, None, bytes(size))
        assert walk_records(whole(data), 2) == (0, 0, True)
