"""A batch in the middle of a request is validated as the same batch alone.

Records are read by their place in the whole frame, so the bytes before and after them (other
partitions, perhaps crafted to continue where these end) must change nothing.
"""

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_tests.log.test_validation import (
    APPEND_TIME,
    COMPACTED,
    NOW,
    PLAIN,
    RECENT_ONLY,
    REFUSED,
    record,
    with_header,
)
from broker_tests.protocol.test_fuzz import damaged, repair
from odradek_broker.log.record_walk import walk_records
from odradek_broker.log.validation import RecordsRejectedError, validate_for_append
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.byte_range import COPY_BYTES_MAX, ByteRange, whole
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.produce import decode_produce
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.record_batch import HEADER_BYTES
from odradek_protocol.records.records import Record, build_batch, check_record

CONFIGS = [
    PLAIN,
    COMPACTED,
    APPEND_TIME,
    RECENT_ONLY,
    LogConfig(compression_type="zstd"),
    LogConfig(compression_type="uncompressed"),
    replace(PLAIN, max_message_bytes=200),
]

records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(NOW - 2000, NOW + 2000),
    key=st.none() | st.binary(max_size=5),
    value=st.none() | st.binary(max_size=80),
    headers=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3))),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Batches that are good, damaged, or damaged with their length and CRC put right."""
    kinds = draw(st.lists(records, min_size=1, max_size=6))
    times = draw(st.sampled_from([1, 1, 1, 15]))  # many of one length are walked in another way
    given = [one._replace(offset=i) for i, one in enumerate(kinds * times)]
    batch = bytearray(build_batch(given, codec=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))))
    damage = draw(st.sampled_from(["none", "any", "repaired", "cut", "count", "two"]))
    if damage in ("any", "repaired"):
        batch = damaged(batch, draw(st.randoms(use_true_random=False)))
    if damage == "repaired":
        repair(batch)
    elif damage == "cut":
        del batch[draw(st.integers(0, len(batch) - 1)) :]
        repair(batch)
    elif damage == "count":
        more = draw(st.sampled_from([-1, 1, 2, 40, 2**31 - 1 - len(given)]))
        count = len(given) + more
        batch = with_header(batch, record_count=count, last_offset_delta=count - 1)
    elif damage == "two":
        batch += batch[: draw(st.integers(0, len(batch)))]
    return bytes(batch)


def outcome(records: ByteRange, config: LogConfig, *, from_client: bool = True) -> object:
    """All that the caller of a validation sees, but for the wording of an error."""
    try:
        validated = validate_for_append(records, config, NOW, from_client=from_client)
    except RecordsRejectedError as error:
        return error.code, error.message, error.record_errors
    except KafkaError as error:
        return error.code
    return validated.headers, validated.log_append_time_ms, bytes(validated.records.from_byte(0))


def neighbours(batch: bytes) -> st.SearchStrategy[bytes]:
    """Random bytes, and bytes that continue the records, for a walk that overruns its end."""
    return st.one_of(
        st.binary(max_size=200),
        st.sampled_from(
            [
                b"",
                batch,
                batch[HEADER_BYTES:],
                batch[HEADER_BYTES:] * 20,
                record(0) * 50,
                bytes(5 * COPY_BYTES_MAX),
                b"\xff" * 40,
            ]
        ),
    )


@settings(max_examples=400)
@given(st.data(), batches(), st.sampled_from(CONFIGS))
def test_a_batch_in_a_frame_is_validated_as_alone(
    data: st.DataObject, batch: bytes, config: LogConfig
) -> None:
    before, after = data.draw(neighbours(batch)), data.draw(neighbours(batch))
    frame = before + batch + after
    there = ByteRange(frame, len(before), len(before) + len(batch))
    assert outcome(there, config) == outcome(whole(batch), config)


@given(batches(), st.integers(0, 10**6), st.sampled_from(CONFIGS))
def test_the_rest_of_a_batch_that_is_cut_off_is_not_looked_for(
    batch: bytes, at: int, config: LogConfig
) -> None:
    """The rest is directly behind the end, as if the batch had not been cut."""
    for part in (batch[: at % len(batch)] if batch else b"", batch[:HEADER_BYTES]):
        for repaired in (False, True):
            front = bytearray(part)
            if repaired:
                repair(front)
            frame = b"before" + front + batch[len(part) :]
            there = ByteRange(frame, 6, 6 + len(front))
            assert outcome(there, config) == outcome(whole(front), config)


@pytest.mark.parametrize("batch", [batch for batch, _ in REFUSED.values()], ids=REFUSED)
def test_a_batch_that_is_refused_alone_is_refused_between_others(batch: bytearray) -> None:
    for before, after in ((b"", record(3)), (b"x", bytes(100)), (bytes(batch), bytes(batch))):
        frame = before + batch + after
        there = ByteRange(frame, len(before), len(before) + len(batch))
        assert outcome(there, PLAIN) == outcome(whole(batch), PLAIN)


@given(st.lists(batches(), min_size=2, max_size=4), st.sampled_from([3, 8, 9, 12]))
def test_each_partition_of_a_request_is_validated_as_if_it_were_the_only_one(
    parts: list[bytes], version: int
) -> None:
    partitions = [Struct(index=i, records=part) for i, part in enumerate(parts)]
    topic = Struct(name="orders", partition_data=partitions)
    asked = Struct(transactional_id=None, acks=-1, timeout=0, topic_data=[topic])
    body = api.encode_request(0, version, asked)
    (decoded,) = decode_produce(version, b"header" + body, 6).topics
    for part, partition in zip(parts, decoded.partitions, strict=True):
        assert partition.records is not None
        assert outcome(partition.records, PLAIN) == outcome(whole(part), PLAIN)


@given(st.binary(max_size=50), st.lists(st.binary(max_size=50), min_size=1, max_size=3))
def test_the_brokers_own_batches_may_lie_in_more_bytes_too(
    around: bytes, values: list[bytes]
) -> None:
    own = b"".join(build_batch([Record(0, NOW, b"k", value)]) for value in values)
    there = ByteRange(around + own + around, len(around), len(around) + len(own))
    for config in (PLAIN, APPEND_TIME):
        alone = outcome(whole(own), config, from_client=False)
        assert outcome(there, config, from_client=False) == alone
        assert there.data == around + own + around, "what was given is left alone"


def walked(records: ByteRange, count: int) -> object:
    with suppress(DecodeError):
        return walk_records(records, count)
    return "refused"


@given(
    st.lists(st.sampled_from([record(0), record(1), record(1, 3), b"\x0e", b"\xff", b"\0"])),
    st.integers(1, 80),
    st.binary(max_size=20) | st.sampled_from([record(0) * 90, record(1) * 9]),
)
@example([record(0)] * 40, 41, record(0) * 90)
@example([record(0)] * 40, 2**31 - 1, record(0) * 90)
@example([record(0)] * 2 + [b"\x0e"], 3, record(0)[1:])
def test_a_walk_ends_where_the_records_end(pieces: list[bytes], count: int, after: bytes) -> None:
    data = b"".join(pieces)
    there = ByteRange(b"ab" + data + after, 2, 2 + len(data))
    assert walked(there, count) == walked(whole(data), count)


def test_a_record_ends_before_the_next_one() -> None:
    """Cut at each of its bytes, with the rest of it behind the limit."""
    data = b"abc" + record(0) + record(1)
    end = 3 + len(record(0))
    assert check_record(data, 3, end) == (end, 0, 0)
    for limit in range(3, end):
        with pytest.raises(DecodeError):
            check_record(data, 3, limit)


class Watched(bytes):
    """Counts the bytes that are asked for."""

    asked_for = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        found = super().__getitem__(key)
        self.asked_for += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.parametrize("size", [1, 200], ids=["of one length", "of many lengths"])
def test_a_walk_costs_no_more_than_its_own_batch_is_worth(size: int) -> None:
    """Otherwise one request of 10 MB, in which each of 100,000 partitions claims the records of
    those behind it, would block the event loop for more than a minute."""
    rng = random.Random(size)
    values = [b"v" * rng.randint(1, size) for _ in range(2000)]
    batch = build_batch([Record(i, NOW, None, value) for i, value in enumerate(values)])
    frame = Watched(record(0) + batch[HEADER_BYTES:])
    with pytest.raises(DecodeError):
        walk_records(ByteRange(frame, 0, len(record(0))), 2**31 - 1)
    assert frame.asked_for < 100
