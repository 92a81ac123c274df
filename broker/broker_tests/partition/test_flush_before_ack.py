"""`flush.messages`: a record is acknowledged only when it is on disk, and fsyncs are shared."""

import errno
from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    ResourceType,
    TopicRecord,
)
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.records.records import Record, build_batch

NODE = BrokerId(1)
TOPIC_ID = UUID(int=7)
DIRECTORY = UUID(int=1000)


class Soon:
    """A scheduler that runs due callbacks when the test calls `run`."""

    def __init__(self) -> None:
        self.callbacks: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: object) -> "Soon":
        self.callbacks.append((callback, args))
        return self

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> "Soon":
        return self

    def cancel(self) -> None: ...

    def run(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback, args in callbacks:
            callback(*args)


class HeldThreads:
    """Jobs run when the test calls `finish_one`."""

    def __init__(self, soon: Soon) -> None:
        self.jobs: list[tuple[Callable[[], object], Callable[[Exception | None], object]]] = []
        self.soon = soon

    def run(self, job: Callable[[], object], done: Callable[[Exception | None], object]) -> None:
        self.jobs.append((job, done))

    def finish_one(self) -> None:
        job, done = self.jobs.pop(0)
        error = None
        try:
            job()
        except Exception as raised:
            error = raised
        done(error)
        self.soon.run()


class Waiter:
    def __init__(self) -> None:
        self.told: list[tuple[int, ErrorCode]] = []

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        self.told.append((index, error))


class Bench:
    def __init__(self, flush_messages: int) -> None:
        self.clock, self.disk = ManualClock(), SimDisk()
        self.soon, self.waiter = Soon(), Waiter()
        self.threads = HeldThreads(self.soon)
        logs = LogManager(["/data"], self.disk, self.clock)
        logs.load()
        self.service = PartitionService(
            NODE, Settings({"log.dirs": "/data"}), logs, self.clock, self.soon, self.threads
        )
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in (
            RegisterBrokerRecord(NODE, UUID(int=5), 0, (), (), None, False, False, (DIRECTORY,)),
            TopicRecord("t", TOPIC_ID),
            PartitionRecord(
                0, TOPIC_ID, (NODE,), (NODE,), (), (), NODE, 0, 0, directories=(DIRECTORY,)
            ),
            ConfigRecord(ResourceType.TOPIC, "t", "flush.messages", str(flush_messages)),
        ):
            delta.replay(record)
        self.service.apply(delta.finish(3))
        self.partition = self.service.by_name["t", 0]

    def append(self, index: int) -> None:
        now_ms = self.clock.now_ms()
        batch = build_batch([Record(0, now_ms, None, b"value %d" % index)])
        info = self.partition.append(memoryview(bytearray(batch)), now_ms)
        self.partition.when_committed(info.last_offset, self.waiter, index)
        self.service.mark_dirty(self.partition)


def test_an_acknowledgement_waits_for_the_fsync() -> None:
    bench = Bench(flush_messages=1)
    bench.append(0)
    bench.soon.run()
    assert bench.waiter.told == []
    assert bench.partition.high_watermark == 0, "consumers wait as well"
    bench.threads.finish_one()
    assert bench.waiter.told == [(0, ErrorCode.none)]
    assert bench.partition.log.recovery_point == 1


def test_appends_during_an_fsync_share_the_next_one() -> None:
    bench = Bench(flush_messages=1)
    bench.append(0)
    bench.soon.run()
    for index in (1, 2, 3):
        bench.append(index)
        bench.soon.run()
    assert len(bench.threads.jobs) == 1
    state = bench.partition.log._state
    job, done = bench.threads.jobs.pop()
    written, state.written_offset = state.written_offset, 1  # the fsync began before 1 to 3 came
    job()
    state.written_offset = written
    done(None)
    bench.soon.run()
    assert bench.waiter.told == [(0, ErrorCode.none)]
    bench.threads.finish_one()
    assert [index for index, _ in bench.waiter.told] == [0, 1, 2, 3]
    assert bench.threads.jobs == []


def test_without_the_setting_acks_do_not_wait_for_fsync() -> None:
    bench = Bench(flush_messages=2**63 - 1)
    bench.append(0)
    bench.soon.run()
    assert bench.waiter.told == [(0, ErrorCode.none)]
    assert bench.threads.jobs == []


def test_every_tenth_record_flushes() -> None:
    bench = Bench(flush_messages=10)
    for index in range(9):
        bench.append(index)
        bench.soon.run()
    assert len(bench.waiter.told) == 9
    bench.append(9)
    bench.soon.run()
    assert len(bench.waiter.told) == 9
    bench.threads.finish_one()
    assert len(bench.waiter.told) == 10


def test_a_failed_fsync_refuses_the_append() -> None:
    bench = Bench(flush_messages=1)
    bench.append(0)
    bench.soon.run()
    bench.disk.fail("/data/t-0", errno.EIO)
    bench.threads.finish_one()
    assert bench.waiter.told == [(0, ErrorCode.kafka_storage_error)]
    assert bench.service.logs.offline_dirs
