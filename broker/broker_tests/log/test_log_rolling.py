"""When a segment rolls, and which offsets a segment can hold."""

import pytest

from broker_tests.log.support import (
    NOW_MS,
    append,
    batch,
    batches_of,
    fetch,
    open_log,
    read_all,
    roll,
    values,
)
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.error_codes import ErrorCode, KafkaError


def test_a_segment_rolls_by_size_and_reads_go_on_in_the_next() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=310))
    for number in range(10):
        append(log, f"value-{number}" + "x" * 60)
    assert len(log.segments) > 3
    assert [segment.base_offset for segment in log.segments][:2] == [0, 2]
    assert len(read_all(log)) == 10
    assert len(read_all(log, 5)) == 5


def test_queued_batches_of_the_old_segment_are_written_before_the_roll() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=310))
    for number in range(5):
        log.append_as_leader(batch(f"{number}" + "x" * 80), 0, NOW_MS)
    assert len(log.segments) > 1
    assert log.written_offset == log.active.base_offset
    log.write_pending()
    assert [value[0] for value in values(log)] == ["0", "1", "2", "3", "4"]


def test_a_segment_rolls_by_the_timestamp_of_its_first_batch() -> None:
    log = open_log(SimDisk(), LogConfig(segment_ms=1000))
    append(log, "a", timestamp=NOW_MS)
    append(log, "b", timestamp=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, "c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_rolls_when_its_index_is_full() -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=24)
    log = open_log(SimDisk(), config)
    for number in range(12):
        append(log, str(number), timestamp=NOW_MS + number)
    assert len(log.segments) > 2
    assert all(len(segment.offset_index) <= 3 for segment in log.segments)
    assert values(log) == [str(number) for number in range(12)]


def test_a_segment_rolls_when_an_offset_does_not_fit_into_31_bits() -> None:
    log = open_log(SimDisk())
    log.append_as_follower(batch("a", base_offset=5))
    log.append_as_follower(batch("b", base_offset=2**31 + 10))
    log.append_as_follower(batch("c", base_offset=2**33))
    log.write_pending()
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 10, 2**33]
    assert values(log) == ["a", "b", "c"]


def test_an_empty_first_segment_gives_way_to_a_far_offset() -> None:
    log = open_log(SimDisk())
    log.append_as_follower(batch("far", base_offset=2**40))
    log.write_pending()
    assert [segment.base_offset for segment in log.segments] == [2**40]
    assert values(log) == ["far"]


def test_offsets_in_a_gap_lead_to_the_next_batch() -> None:
    """As after compaction: 3..4, then 10, then (in the next segment) 20."""
    log = open_log(SimDisk())
    log.append_as_follower(batch("c", "d", base_offset=3))
    log.append_as_follower(batch("k", base_offset=10))
    roll(log)
    log.append_as_follower(batch("u", base_offset=20))
    log.write_pending()
    for forget in (False, True):
        for segment in log.segments:
            segment.recent = None if forget else segment.recent
        assert values(log, 0) == ["c", "d", "k", "u"]
        assert values(log, 5) == ["k", "u"]
        assert values(log, 11) == ["u"]
        assert len(list(batches_of(fetch(log, 0, upper=10)))) == 1
        assert len(list(batches_of(fetch(log, 0, upper=11)))) == 2


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=200))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch("x" * 300), 0, NOW_MS)
    assert caught.value.code == ErrorCode.record_list_too_large
