"""Random histories of a log on the simulated disk, compared with a plain list.

After a clean shutdown and after kill -9 everything written is there. After a power failure a
prefix of it is there, at least all that was flushed, and nothing else.
"""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_tests.log.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    batch,
    batches_of,
    fetch,
    open_manager,
    records_of,
    roll,
)
from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import Offset
from odradek_protocol.records.record_batch import read_header


class ModelBatch(NamedTuple):
    base: Offset
    last: Offset
    values: tuple[str, ...]
    timestamp: int


class LogMachine(RuleBasedStateMachine):
    """`history` holds every batch of the present lineage, also those before the log start."""

    gaps = False
    config = LogConfig(
        segment_bytes=400,
        index_interval_bytes=100,
        retention_ms=5_000,
        retention_bytes=1500,
        file_delete_delay_ms=100,
    )

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.clock = ManualClock(NOW_MS)
        self.history: list[ModelBatch] = []
        self.queued: list[ModelBatch] = []
        self.durable: Offset = 0
        self.counter = 0
        self.manager: LogManager
        self.log: Log

    @initialize()
    def first_start(self) -> None:
        self.open()

    def open(self) -> None:
        self.manager = open_manager(self.disk, clock=self.clock)
        self.manager.load(config_of=lambda _: self.config)
        self.log = self.manager.get_or_create(TP, TOPIC_ID, self.config)

    @property
    def written_end(self) -> Offset:
        return self.log.written_offset

    # The events of a log

    @rule(count=st.integers(1, 4), size=st.integers(0, 120), later_ms=st.integers(-50, 400))
    def append(self, count: int, size: int, later_ms: int) -> None:
        values = tuple(f"{self.counter + n}:{'x' * size}" for n in range(count))
        self.counter += count
        timestamp = self.clock.now_ms() + later_ms
        base = self.log.log_end_offset
        data = batch(*values, timestamp=timestamp)
        if len(data) > self.config.segment_bytes:
            return
        rolled_before = len(self.log.segments)
        info = self.log.append_as_leader(data, 0, self.clock.now_ms())
        assert (info.first_offset, info.last_offset) == (base, base + count - 1)
        if len(self.log.segments) != rolled_before:
            self.all_written()
        self.queued.append(ModelBatch(base, base + count - 1, values, timestamp))
        self.clock.advance(max(0, later_ms))

    @rule(gap=st.integers(0, 30), count=st.integers(1, 3))
    def replicate(self, gap: int, count: int) -> None:
        """Batches as a leader sends them; with gaps if its log was compacted."""
        values = tuple(f"{self.counter + n}:r" for n in range(count))
        self.counter += count
        base = self.log.log_end_offset + (gap if self.gaps else 0)
        timestamp = self.clock.now_ms()
        rolled_before = len(self.log.segments)
        self.log.append_as_follower(
            batch(*values, base_offset=base, leader_epoch=0, timestamp=timestamp)
        )
        if len(self.log.segments) != rolled_before:
            self.all_written()
        self.queued.append(ModelBatch(base, base + count - 1, values, timestamp))

    def all_written(self) -> None:
        self.history += self.queued
        self.queued = []

    @rule()
    def write(self) -> None:
        self.log.write_pending()
        self.all_written()
        self.log.high_watermark = self.log.written_offset

    @rule()
    def roll(self) -> None:
        roll(self.log, self.clock.now_ms())
        self.all_written()

    @rule()
    def flush(self) -> None:
        written = self.log.written_offset
        self.log.flush(self.clock.now_ms())
        self.durable = max(self.durable, written)

    @rule(ms=st.integers(0, 3000))
    def tick(self, ms: int) -> None:
        self.clock.advance(ms)
        for job in self.manager.tick(self.clock.now_ms()):
            job()

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments(self.clock.now_ms())
        if len(self.log.segments) == 1 and self.log.active.size == 0:
            self.all_written()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        if end > start:
            self.log.advance_log_start_offset(start + int((end - start) * share))

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.write()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        target = start + int((end - start) * share)
        self.log.truncate_to(target)
        self.history = [one for one in self.history if one.last < target]
        end = self.log.log_end_offset
        assert end <= target
        assert all(one.last < end for one in self.history)
        self.durable = min(self.durable, end)

    @rule()
    def restart(self) -> None:
        self.write()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.manager.close()
        self.open()
        assert self.manager.clean_shutdown
        assert self.log.log_start_offset == start
        # Only a truncation into a gap is not remembered over a restart.
        assert self.log.log_end_offset == end or self.gaps
        self.durable = self.log.log_end_offset

    @rule()
    def kill(self) -> None:
        """kill -9: the page cache stays."""
        end, start = self.log.written_offset, self.log.log_start_offset
        self.queued = []
        self.disk._locks.clear()
        self.open()
        assert not self.manager.clean_shutdown
        assert self.log.log_end_offset == end or self.gaps
        assert self.log.log_start_offset <= start
        self.durable = min(self.durable, self.log.log_end_offset)

    @rule(seed=st.integers(0, 2**32))
    def power_failure(self, seed: int) -> None:
        start = self.log.log_start_offset
        self.queued = []
        self.disk.crash(Random(seed))
        self.open()
        end = self.log.log_end_offset
        assert all(one.last < end for one in self.history if one.last < self.durable)
        assert self.log.log_start_offset <= start
        self.history = [one for one in self.history if one.last < end]
        if not self.gaps:
            kept = self.history[-1].last + 1 if self.history else end
            assert end == max(kept, self.log.log_start_offset)

    # The invariants

    def expected(self, offset: Offset, upper: Offset) -> list[ModelBatch]:
        return [one for one in self.history if one.last >= offset and one.last < upper]

    @rule(share=st.floats(0, 1), upper_share=st.floats(0, 1.2), max_bytes=st.integers(0, 1000))
    def read(self, share: float, upper_share: float, max_bytes: int) -> None:
        start, end = self.log.log_start_offset, self.log.written_offset
        offset = start + int((end - start) * share)
        upper = start + int((end - start) * upper_share)
        expected = self.expected(offset, min(upper, end))
        data = fetch(self.log, offset, max_bytes, upper)
        if not expected:
            assert data == b""
            return
        found = list(batches_of(data))
        assert len(found) >= 1
        for one, model in zip(found, expected, strict=False):
            self.same(one, model)
        assert len(data) <= max_bytes or len(found) == 1

    @staticmethod
    def same(found: bytes, model: ModelBatch) -> None:
        header = read_header(found)
        assert (header.base_offset, header.last_offset) == (model.base, model.last)
        values = tuple((record.value or b"").decode() for record in records_of(found))
        assert values == model.values

    @rule(back_ms=st.integers(-100, 3000))
    def look_up_timestamp(self, back_ms: int) -> None:
        timestamp = self.clock.now_ms() - back_ms
        found = self.log.offset_for_timestamp(timestamp)
        start, end = self.log.log_start_offset, self.written_end
        expected = next(
            (
                max(one.base, start)
                for one in self.history
                if one.timestamp >= timestamp and start <= one.last < end
            ),
            None,
        )
        assert (found and found.offset) == expected

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def whole_log_is_the_list(self) -> None:
        log = self.log
        log.validate()
        position = log.log_start_offset
        found: list[bytes] = []
        while data := fetch(log, position, 4096):
            one = list(batches_of(data))
            assert one, f"no progress at {position}"
            found += one
            position = read_header(one[-1]).next_offset
        expected = self.expected(log.log_start_offset, log.written_offset)
        assert len(found) == len(expected)
        for one_found, model in zip(found, expected, strict=True):
            self.same(one_found, model)

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def outside_is_out_of_range(self) -> None:
        for offset in (self.log.log_start_offset - 1, self.log.log_end_offset + 1):
            with pytest.raises(KafkaError):
                self.log.read(offset, 100, 1 << 62)


class GapsMachine(LogMachine):
    """The same with a compacted topic, whose offsets have gaps."""

    gaps = True
    config = LogConfig(
        segment_bytes=400,
        index_interval_bytes=100,
        cleanup_delete=False,
        file_delete_delay_ms=100,
    )

    def open(self) -> None:
        self.disk.make_dir("/data")
        self.disk.write("/data/cleaner-offset-checkpoint", b"0\n1\norders 0 0\n")
        super().open()


TestLogIsAList = LogMachine.TestCase
TestLogIsAList.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLogWithGapsIsAList = GapsMachine.TestCase
TestLogWithGapsIsAList.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_a_lookup_by_time_while_batches_are_queued() -> None:
    """An entry of the time index for a queued batch is not damage (found by the model).

    1. Batches are written, and one more is queued; its entry is in the time index already.
    2. A lookup by timestamp finds that entry, and no batch in the file that belongs to it.
    3. The index was rebuilt from the file, without the queued batch: later lookups missed it.
    """
    machine = LogMachine()
    machine.first_start()
    machine.append(count=3, later_ms=0, size=0)
    machine.replicate(count=1, gap=0)
    machine.append(count=1, later_ms=0, size=0)
    machine.append(count=1, later_ms=0, size=31)
    machine.look_up_timestamp(back_ms=0)
    machine.replicate(count=1, gap=0)
    machine.look_up_timestamp(back_ms=0)
