"""Killed at any step of a swap, a deletion or a truncation: the next load finishes or undoes it."""

from collections.abc import Callable

import pytest

from broker_tests.log.support import NOW_MS, TOPIC_ID, TP, append, open_manager, read_all, values
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.checkpoints import RECOVERY_POINT
from odradek_broker.log.file_names import file_name, parse_dir_name, parse_file_name
from odradek_broker.log.log import Log
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.records import Record

CONFIG = LogConfig(segment_bytes=310, index_interval_bytes=50)


class KilledError(BaseException):
    """The process dies here."""


class MortalDisk(SimDisk):
    """Dies after a number of changes to names or lengths."""

    steps_left = 1 << 30

    def _changing_names(self, path: str) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise KilledError
        super()._changing_names(path)


def prepared(disk: MortalDisk, *, cleaned: bool) -> Log:
    """Ten records in five segments; with `cleaned`, checkpointed and known to be compacted."""
    disk.make_dir("/data")
    if cleaned:
        disk.write("/data/cleaner-offset-checkpoint", b"0\n1\norders 0 0\n")
    log = open_manager(disk).get_or_create(TP, TOPIC_ID, CONFIG)
    for number in range(10):
        append(log, f"{number}" + "x" * 80)
    log.flush()
    log.log_dir.checkpoints.write(RECOVERY_POINT)
    return log


def compacted(log: Log) -> None:
    """Replaces the first two segments by one with the batches at even offsets, as a cleaner."""
    old = log.segments[:2]
    new = log.new_cleaned_segment(old[0].base_offset, NOW_MS)
    kept = []
    for segment in old:
        for position, header in segment.headers():
            if header.base_offset % 2 == 0:
                data = segment.file().pread(header.size, position)
                new.add(header.base_offset, header.last_offset, NOW_MS, len(data), 50)
                kept.append(data)
    new.write(kept)
    new.seal()
    new.sync()
    assert log.replace_segments(old, [new], NOW_MS)


def offsets(log: Log) -> list[int]:
    return [record.offset for record in read_all(log)]


def test_replaced_segments_are_read_at_once() -> None:
    log = prepared(MortalDisk(), cleaned=True)
    reader = log.read(1, 1000, 1 << 62)[0]
    compacted(log)
    assert offsets(log) == [0, 2, 4, 5, 6, 7, 8, 9]
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6, 8]
    assert values(log, 1)[0][0] == "2"
    assert reader is not None
    assert reader.file.pread(reader.length, reader.position)  # type: ignore[attr-defined]
    names = [entry.name for entry in log.log_dir.disk.scan(log.dir)]
    assert "00000000000000000002.log.deleted" in names
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    log.validate()


def test_a_replacement_is_given_up_when_retention_was_faster() -> None:
    disk = MortalDisk()
    log = prepared(disk, cleaned=True)
    old = log.segments[:2]
    new = log.new_cleaned_segment(0, NOW_MS)
    log.advance_log_start_offset(4)
    log.delete_old_segments(NOW_MS)
    assert not log.replace_segments(old, [new], NOW_MS)
    assert offsets(log) == [4, 5, 6, 7, 8, 9]
    assert not [entry for entry in disk.scan(log.dir) if "cleaned" in entry.name]


def kill_at_every_step(
    act: Callable[[Log], None], cleaned: bool
) -> tuple[int, set[tuple[Record, ...]]]:
    """The number of steps of the action, and the result of a kill before each of them."""
    found = set()
    for steps in range(1000):
        disk = MortalDisk()
        log = prepared(disk, cleaned=cleaned)
        disk.steps_left = steps
        try:
            act(log)
        except KilledError:
            killed = True
        else:
            killed = False
        disk.steps_left = 1 << 30
        for _ in range(2):  # the second time nothing is left to do
            disk._locks.clear()
            manager = open_manager(disk)
            manager.load(config_of=lambda _: CONFIG)
            again = manager.logs[TP]
            again.high_watermark = again.written_offset
            records = read_all(again)
            names = [entry.name for entry in disk.scan(again.dir)]
            assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        found.add(tuple(record._replace(headers=()) for record in records))
        append(again, "next")
        assert values(again)[-1] == "next"
        if not killed:
            return steps, found
    raise AssertionError("never done")


def test_killed_at_any_step_of_a_swap() -> None:
    """Either the old segments are there or the new one, never a mixture that lacks a record."""
    steps, found = kill_at_every_step(compacted, cleaned=True)
    assert steps > 10
    assert {tuple(record.offset for record in records) for records in found} == {
        tuple(range(10)),
        (0, 2, 4, 5, 6, 7, 8, 9),
    }


def retain(log: Log) -> None:
    log.update_config(LogConfig(segment_bytes=310, retention_bytes=500))
    log.delete_old_segments(NOW_MS)


def test_killed_at_any_step_of_retention() -> None:
    steps, found = kill_at_every_step(retain, cleaned=False)
    assert steps > 3
    for records in found:
        numbers = [record.offset for record in records]
        assert numbers == list(range(numbers[0], 10))


@pytest.mark.parametrize("offset", [1, 4, 5, 9])
def test_killed_at_any_step_of_a_truncation(offset: int) -> None:
    _, found = kill_at_every_step(lambda log: log.truncate_to(offset), cleaned=False)
    for records in found:
        numbers = [record.offset for record in records]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= offset
    assert min(len(records) for records in found) == offset


def test_names() -> None:
    assert file_name(5000, ".log") == "00000000000000005000.log"
    assert parse_file_name("00000000000000005000.index.swap") == (5000, ".index", ".swap")
    assert parse_file_name("00000000000000005000.snapshot") == (5000, ".snapshot", "")
    for name in ("5000.log", "0000000000000000500x.log", "leader-epoch-checkpoint", "a.b"):
        assert parse_file_name(name) is None
    assert parse_dir_name("my-topic-12") == TopicPartition("my-topic", 12)
    for name in ("topic", "topic-0.aa-delete", "-1x", "topic-"):
        assert parse_dir_name(name) is None
