"""Stories of one log: append, write, read, roll, look up, delete, truncate, close, open again."""

import errno
import os
import re

import pytest

from broker_tests.log.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    append,
    batch,
    batches_of,
    commit,
    fetch,
    open_log,
    open_manager,
    read_all,
    roll,
    values,
)
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_names import OFFSET_INDEX
from odradek_broker.log.index_file import NO_BLOCK, TAIL_BYTES
from odradek_broker.log.recent import RECENT_BATCHES_MAX
from odradek_broker.model.log_config import LONG_MAX, LogConfig
from odradek_protocol.byte_range import COPY_BYTES_MAX, ByteRange
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.records.record_batch import read_header


def test_readers_see_what_is_written_not_what_is_queued() -> None:
    log = open_log(SimDisk())
    info = log.append_as_leader(batch("a", "b"), 3, NOW_MS)
    assert (info.first_offset, info.last_offset, info.duplicate) == (0, 1, False)
    assert (log.log_end_offset, log.written_offset) == (2, 0)
    assert log.read(0, 1000, 1 << 62) == (None, 0)
    log.write_pending()
    assert log.written_offset == 2
    assert values(log) == ["a", "b"]
    header = read_header(fetch(log, 0))
    assert (header.base_offset, header.partition_leader_epoch) == (0, 3)


@pytest.mark.parametrize("size", [1, COPY_BYTES_MAX, 50 * COPY_BYTES_MAX])
def test_offset_and_epoch_are_stamped_on_what_is_written_not_on_what_was_given(size: int) -> None:
    """Small batches, and large ones, which are not copied; from the middle of a request."""
    log = open_log(SimDisk())
    given = bytes(batch("v" * size, "w"))
    frame = b"before" + given + b"after"
    for _ in range(3):
        log.append_as_leader(ByteRange(frame, 6, 6 + len(given)), 7, NOW_MS)
    assert frame == b"before" + given + b"after"
    commit(log)
    written = list(batches_of(fetch(log, 0)))
    assert [read_header(one).base_offset for one in written] == [0, 2, 4]
    assert {read_header(one).partition_leader_epoch for one in written} == {7}
    assert [one[8:12] + one[16:] for one in written] == [given[8:12] + given[16:]] * 3
    assert [one.offset for one in read_all(log)] == [0, 1, 2, 3, 4, 5]


def test_several_batches_of_the_broker_itself_are_stamped_one_by_one() -> None:
    log = open_log(SimDisk())
    given = [bytes(batch("a", "b")), bytes(batch("c" * 2 * COPY_BYTES_MAX)), bytes(batch("d"))]
    info = log.append_as_leader(b"".join(given), 4, NOW_MS, from_client=False)
    assert (info.first_offset, info.last_offset) == (0, 3)
    commit(log)
    written = [read_header(one) for one in batches_of(fetch(log, 0))]
    assert [header.base_offset for header in written] == [0, 2, 3]
    assert [header.partition_leader_epoch for header in written] == [4, 4, 4]
    assert values(log) == ["a", "b", "c" * 2 * COPY_BYTES_MAX, "d"]


def test_any_buffer_is_appended_and_may_be_used_again_afterwards() -> None:
    """Also before it is written."""
    log = open_log(SimDisk())
    buffer = batch("a")
    log.append_as_leader(buffer, 0, NOW_MS)
    log.append_as_leader(memoryview(buffer), 0, NOW_MS)
    log.append_as_leader(bytes(buffer), 0, NOW_MS)
    buffer[:] = bytes(len(buffer))
    commit(log)
    assert values(log) == ["a", "a", "a"]


def test_an_offset_past_the_end_is_out_of_range_the_end_itself_is_empty() -> None:
    log = open_log(SimDisk())
    append(log, "a")
    assert log.read(1, 1000, 1 << 62) == (None, 1)
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000, 1 << 62)
        assert caught.value.code == ErrorCode.offset_out_of_range


def test_a_read_stops_below_the_upper_bound() -> None:
    log = open_log(SimDisk())
    for value in "abcd":
        append(log, value)
    assert [one.offset for one in read_all(log)] == [0, 1, 2, 3]
    assert len(list(batches_of(fetch(log, 1, upper=3)))) == 2
    assert fetch(log, 1, upper=1) == b""


def test_the_first_batch_comes_whole_the_others_if_they_fit() -> None:
    log = open_log(SimDisk())
    for value in ("a" * 500, "b", "c"):
        append(log, value)
    first, second = (len(batch(value)) for value in ("a" * 500, "b"))
    assert len(fetch(log, 0, max_bytes=10)) == first
    assert log.read(0, 10, 1 << 62, min_one_batch=False) == (None, 0)
    assert len(fetch(log, 0, max_bytes=first + second + 5)) == first + second


def test_a_read_from_the_middle_of_a_batch_gives_the_batch() -> None:
    log = open_log(SimDisk())
    append(log, "a", "b", "c")
    found, base_offset = log.read(2, 1000, 1 << 62)
    assert found is not None
    assert base_offset == 0
    assert values(log, 2) == ["c"]


def test_a_follower_refuses_offsets_that_it_has() -> None:
    log = open_log(SimDisk())
    log.append_as_follower(batch("a", "b"))
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(batch("b", base_offset=1))
    assert caught.value.code == ErrorCode.offset_out_of_range
    assert log.log_end_offset == 2


def test_lookup_by_timestamp_finds_the_first_record_at_least_as_young() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=400, index_interval_bytes=1))
    for number in range(20):
        append(log, f"v{number}", timestamp=NOW_MS + 10 * number)
    for number in range(20):
        found = log.offset_for_timestamp(NOW_MS + 10 * number - 5)
        assert found is not None
        assert (found.offset, found.timestamp) == (number, NOW_MS + 10 * number)
    assert log.offset_for_timestamp(NOW_MS + 191) is None
    latest = log.max_timestamp_offset()
    assert latest is not None
    assert latest.offset == 19


def test_lookup_by_timestamp_with_records_out_of_order() -> None:
    log = open_log(SimDisk(), LogConfig(index_interval_bytes=1))
    for timestamp in (50, 90, 20, 70, 95, 10):
        append(log, "x", timestamp=NOW_MS + timestamp)
    expected = {0: 0, 50: 0, 51: 1, 90: 1, 91: 4, 95: 4, 96: None}
    for timestamp, offset in expected.items():
        found = log.offset_for_timestamp(NOW_MS + timestamp)
        assert (found and found.offset) == offset


def test_the_youngest_record_is_searched_among_the_remaining_ones() -> None:
    log = open_log(SimDisk())
    for timestamp in (90, 50, 70, 60):
        append(log, "x", timestamp=NOW_MS + timestamp)
    log.advance_log_start_offset(1)
    found = log.max_timestamp_offset()
    assert found is not None
    assert (found.offset, found.timestamp) == (2, NOW_MS + 70)


def test_truncation_takes_the_snapshots_of_the_lost_history_along() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, "a")
    roll(log)
    append(log, "b")
    roll(log)
    assert disk.exists(f"{log.dir}/{2:020d}.snapshot")
    log.truncate_to(1)
    assert not disk.exists(f"{log.dir}/{2:020d}.snapshot")
    assert disk.exists(f"{log.dir}/{1:020d}.snapshot")


def test_deleted_records_are_out_of_range_and_their_segments_go_with_retention() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_bytes=310, file_delete_delay_ms=1000))
    for number in range(10):
        append(log, f"{number}" + "x" * 80)
    log.advance_log_start_offset(5)
    with pytest.raises(KafkaError):
        log.read(4, 1000, 1 << 62)
    assert log.delete_old_segments(NOW_MS) == 2
    assert log.segments[0].base_offset == 4
    assert log.log_start_offset == 5
    names = [entry.name for entry in disk.scan(log.dir)]
    assert "00000000000000000000.log.deleted" in names
    assert log.log_dir.take_due_removals(NOW_MS + 999) == []
    log.log_dir.remove(log.log_dir.take_due_removals(NOW_MS + 1000))
    assert not [entry.name for entry in disk.scan(log.dir) if "deleted" in entry.name]
    assert values(log)[0][0] == "5"
    with pytest.raises(KafkaError) as caught:
        log.advance_log_start_offset(11)
    assert caught.value.code == ErrorCode.offset_out_of_range


def test_a_range_stays_readable_after_its_segment_was_deleted() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=100, retention_bytes=0))
    append(log, "x" * 30)
    found, _ = log.read(0, 1000, 1 << 62)
    append(log, "y" * 30)
    assert log.delete_old_segments(NOW_MS) == 2
    log.log_dir.remove(log.log_dir.take_due_removals(LONG_MAX))
    assert found is not None
    assert b"x" * 30 in found.file.pread(found.length, found.position)  # type: ignore[attr-defined]


def test_retention_of_everything_rolls_first() -> None:
    log = open_log(SimDisk(), LogConfig(retention_ms=1000))
    append(log, "a")
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + 1001) == 1
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert [segment.base_offset for segment in log.segments] == [1]
    assert log.delete_old_segments(NOW_MS + 9999) == 0
    append(log, "b")
    assert values(log) == ["b"]


def test_retention_keeps_uncommitted_records() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=100, retention_ms=1000))
    for value in "abc":
        append(log, value * 30)
    log.high_watermark = 1
    assert log.delete_old_segments(NOW_MS + 5000) == 1
    assert log.log_start_offset == 1


def test_truncation_drops_whole_batches_and_the_log_goes_on() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=310))
    for number in range(10):
        append(log, f"{number}" + "x" * 80, leader_epoch=number // 4)
    log.truncate_to(5)
    assert (log.log_end_offset, log.written_offset, log.high_watermark) == (5, 5, 5)
    assert log.epochs.entries == [(0, 0), (1, 4)]
    append(log, "new", leader_epoch=7)
    assert [value[0] for value in values(log)] == ["0", "1", "2", "3", "4", "n"]
    log.truncate_to(100)
    assert log.log_end_offset == 6


def test_an_epoch_without_records_is_forgotten_by_a_truncation_to_the_end() -> None:
    log = open_log(SimDisk())
    append(log, "a", leader_epoch=1)
    log.epochs.assign(4, log.log_end_offset)
    log.truncate_to(1)
    assert (log.epochs.latest, log.log_end_offset) == (1, 1)


def test_truncation_inside_a_batch_drops_the_batch() -> None:
    log = open_log(SimDisk())
    append(log, "a")
    append(log, "b", "c", "d")
    log.truncate_to(3)
    assert log.log_end_offset == 1
    assert values(log) == ["a"]


def test_truncation_before_the_log_starts_it_anew() -> None:
    log = open_log(SimDisk())
    append(log, "a", "b")
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    append(log, "c")
    assert [record.offset for record in read_all(log)] == [100]
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


@pytest.mark.parametrize("batches", [1, 2])
def test_an_index_that_cannot_be_written_takes_the_directory_offline(batches: int) -> None:
    """1. an append makes the index write its entries, and the write fails; 2. the disk works again,
    but the directory stays offline; 3. the next start finds what was written before."""
    disk = SimDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=1))
    disk.fail(log.active.path(OFFSET_INDEX), errno.EIO)
    # The first batch has no entry; one more than these fills the tail that is kept in memory.
    accepted = [f"{number}" for number in range(TAIL_BYTES // 8 + 1 - batches)]
    for value in accepted:
        append(log, value)
    refused = b"".join(bytes(batch(f"refused {number}")) for number in range(batches))
    with pytest.raises(LogDirError, match=re.escape(os.strerror(errno.EIO))):
        log.append_as_leader(refused, 0, NOW_MS, from_client=batches == 1)
    disk.heal()
    with pytest.raises(LogDirError):
        append(log, "after")
    if batches > 1:
        with pytest.raises(LogDirError):
            log.write_pending()
    disk._locks.clear()
    again = open_log(disk, LogConfig(index_interval_bytes=1))
    assert values(again) == accepted
    append(again, "after")
    assert [record.offset for record in read_all(again)] == list(range(len(accepted) + 1))


def test_a_reader_of_old_data_leaves_nothing_in_memory_when_its_file_is_closed() -> None:
    log = open_log(SimDisk(), LogConfig(index_interval_bytes=1))
    for number in range(2 * RECENT_BATCHES_MAX):
        log.append_as_leader(batch(f"{number}"), 0, NOW_MS)
    commit(log)
    segment = log.active
    segment.retention_timestamp()
    segment.position_before(5)
    assert segment.offset_index._block is NO_BLOCK, "only who reads on wants more of it"
    assert segment.locate(5) is not None
    assert segment.offset_index._block is not NO_BLOCK
    segment.release_file()
    assert segment.offset_index._block is NO_BLOCK


def test_a_failed_write_takes_the_directory_offline_and_shows_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, "kept")
    log.append_as_leader(batch("lost"), 0, NOW_MS)
    disk.fail("/data", errno.EIO)
    with pytest.raises(LogDirError) as caught:
        log.write_pending()
    assert caught.value.code == ErrorCode.kafka_storage_error
    assert (log.written_offset, log.log_end_offset) == (1, 1)
    disk.heal()
    for attempt in (
        lambda: log.append_as_leader(batch("more"), 0, NOW_MS),
        lambda: log.read(0, 1000, 1 << 62),
        lambda: log.truncate_to(0),
        lambda: log.offset_for_timestamp(0),
    ):
        with pytest.raises(LogDirError):
            attempt()


def test_a_full_disk_leaves_a_torn_batch_that_recovery_cuts_off() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, "kept")
    disk.capacity_bytes -= disk.room_for(0) - 30
    log.append_as_leader(batch("too large " * 10), 0, NOW_MS)
    with pytest.raises(LogDirError):
        log.write_pending()
    assert log.active.file().size() > log.active.written
    disk.capacity_bytes = 1 << 40
    disk._locks.clear()
    again = open_log(disk)
    assert values(again) == ["kept"]
    append(again, "next")
    assert values(again) == ["kept", "next"]


def test_a_clean_shutdown_needs_no_recovery_and_loses_nothing() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(TP, TOPIC_ID, LogConfig(segment_bytes=310))
    for number in range(10):
        append(log, f"{number}" + "x" * 80, leader_epoch=number // 5)
    log.advance_log_start_offset(1)
    manager.close()
    again = open_manager(disk)
    assert again.clean_shutdown
    again.load()
    log = again.logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1, 10, 10)
    assert log.high_watermark == 10
    assert log.topic_id == TOPIC_ID
    assert log.epochs.entries == [(0, 1), (1, 5)]
    assert [value[0] for value in values(log)] == list("123456789")
    append(log, "more")
    assert values(log)[-1] == "more"


def test_flush_moves_the_recovery_point_but_not_past_unsynced_indexes() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=310))
    append(log, "a" * 100)
    log.flush()
    assert log.recovery_point == 1
    append(log, "b" * 100)
    assert len(log.segments) == 2
    # The first segment is complete now, its indexes were written but not synced.
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2
    assert log.segments[0].synced


def test_flush_due_by_messages_and_by_time() -> None:
    log = open_log(SimDisk(), LogConfig(flush_messages=2, flush_ms=1000))
    log.flush(NOW_MS)
    append(log, "a")
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS + 1000)
    append(log, "b")
    assert log.flush_due(NOW_MS)
    log.flush(NOW_MS)
    assert not log.flush_due(NOW_MS + 5000)


def test_with_one_replica_written_records_are_committed() -> None:
    log = open_log(SimDisk())
    log.append_as_leader(batch("a"), 0, NOW_MS)
    commit(log)
    assert log.last_stable_offset == log.high_watermark == 1
