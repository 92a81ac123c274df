"""A replica moves between the directories of its broker while producers write to it."""

import errno
from collections.abc import Iterator
from uuid import UUID

import pytest

from broker_tests.log.support import batch, values
from broker_tests.manual_clock import ManualClock
from broker_tests.partition.support import (
    ONE,
    TOPIC_ID,
    TWO,
    ManualScheduler,
    Metadata,
    Node,
    Waiter,
    register,
    topic,
)
from broker_tests.partition.test_commands import Recorded
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log import copying
from odradek_broker.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from odradek_broker.runtime.disk import Disk
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition

NOW_MS = 1_700_000_000_000
TP = TopicPartition("orders", 0)


class Broker:
    """Broker 1 with the directories /a and /b, leading one partition that it has alone."""

    def __init__(self, disk: Disk | None = None, settings: dict[str, str] | None = None) -> None:
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.metadata = Metadata()
        self.node = Node(
            ONE,
            self.metadata,
            self.clock,
            self.scheduler,
            {"log.dirs": "/a,/b", **(settings or {})},
            disk,
        )
        self.disk = self.node.disk
        self.service = self.node.service
        self.logs = self.node.logs
        self.recorded = Recorded()
        self.written: list[str] = []

    def start(self) -> None:
        self.logs.load()
        if TP not in self.logs.logs:
            self.logs.prefer(TP, self.logs.dirs[0])
        self.metadata.commit(register(ONE), *topic(replicas=(ONE,)))
        self.service.attach(self.recorded)
        self.recorded.directories.clear()

    def write(self, count: int = 1) -> None:
        waiter = Waiter()
        for _ in range(count):
            value = f"n{len(self.written)}"
            info = self.node.partition().append(memoryview(batch(value)), NOW_MS)
            self.node.partition().when_committed(info.first_offset, waiter, 0)
            self.written.append(value)
        self.service.mark_dirty(self.node.partition())
        self.scheduler.run()
        assert waiter.outcomes == [(0, ErrorCode.none)] * count

    def rounds(self) -> Iterator[None]:
        """Runs the jobs one at a time, until the move is over."""
        self.scheduler.run()
        while self.node.threads.jobs or self.logs.futures.logs:
            yield
            self.node.threads.finish()
            self.scheduler.advance(10)

    @property
    def home(self) -> str:
        return self.node.partition().log.dir

    def dirs(self) -> list[str]:
        found = [f"{d}/{e.name}" for d in ("/a", "/b") for e in self.disk.scan(d) if e.is_dir]
        return sorted(path.split(".")[0] + path[path.rfind("-") :] for path in found)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "SLICE_BYTES", 500)


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.start()
    broker.write(30)
    assert broker.home == "/a/orders-0"
    return broker


def test_a_replica_moves_while_it_is_written_to(broker: Broker) -> None:
    broker.service.move_replica(TP, "/b/")
    for count, _ in enumerate(broker.rounds()):
        if count < 20:
            broker.write()
        assert count < 100
    assert count >= 4
    assert broker.home == "/b/orders-0"
    broker.write()
    log = broker.node.partition().log
    assert values(log) == broker.written
    assert log.high_watermark == len(broker.written)
    assert broker.dirs() == ["/a/orders-0-delete", "/b/orders-0-0"]
    # The new directory is reported to the controller.
    assert broker.recorded.directories == [(0, broker.logs.dirs[1].directory_id)]


def test_a_move_back_cancels_the_move(broker: Broker) -> None:
    broker.service.move_replica(TP, "/b")
    rounds = broker.rounds()
    next(rounds)
    next(rounds)
    assert "/b/orders-0-future" in broker.dirs()
    broker.service.move_replica(TP, "/b")  # requested again: nothing changes
    broker.service.move_replica(TP, "/a")
    for _ in rounds:
        broker.write()
    assert broker.home == "/a/orders-0"
    assert broker.dirs() == ["/a/orders-0-0", "/b/orders-0-delete"]
    assert values(broker.node.partition().log) == broker.written


def test_the_topic_is_deleted_meanwhile(broker: Broker) -> None:
    broker.service.move_replica(TP, "/b")
    rounds = broker.rounds()
    next(rounds)
    broker.metadata.commit(RemoveTopicRecord(TOPIC_ID))
    for _ in rounds:
        pass
    assert broker.dirs() == ["/a/orders-0-delete", "/b/orders-0-delete"]


def test_the_new_directory_fails_meanwhile(broker: Broker) -> None:
    broker.service.move_replica(TP, "/b")
    rounds = broker.rounds()
    next(rounds)
    assert isinstance(broker.disk, SimDisk)
    broker.disk.fail("/b", errno.EIO)
    for _ in rounds:
        broker.write()
    assert broker.home == "/a/orders-0"
    broker.write()
    assert [d.path for d in broker.logs.offline_dirs] == ["/b"]
    with pytest.raises(KafkaError) as refused:
        broker.service.move_replica(TP, "/b")
    assert refused.value.code is ErrorCode.kafka_storage_error


def test_the_old_directory_fails_meanwhile(broker: Broker) -> None:
    """An incomplete copy does not become the replica."""
    broker.service.move_replica(TP, "/b")
    rounds = broker.rounds()
    next(rounds)
    assert isinstance(broker.disk, SimDisk)
    broker.disk.fail("/a", errno.EIO)
    for _ in rounds:
        pass
    assert broker.node.partition().leading is None
    broker.disk.heal()
    assert broker.dirs()[-1:] == ["/b/orders-0-delete"]


def test_a_broker_that_starts_again_goes_on(broker: Broker) -> None:
    broker.service.move_replica(TP, "/b")
    rounds = broker.rounds()
    for _ in range(3):
        next(rounds)
    copied = broker.logs.futures.logs[TP].log_end_offset
    assert 0 < copied < 30
    broker.logs.close()
    again = Broker(broker.disk)
    again.start()
    again.written = broker.written
    assert again.logs.futures.logs[TP].log_end_offset == copied
    for _ in again.rounds():
        again.write()
    assert again.home == "/b/orders-0"
    assert values(again.node.partition().log) == again.written


def test_a_follower_that_is_cut_meanwhile(broker: Broker) -> None:
    """The partition gets another leader, whose log is shorter and then differs."""
    broker.service.move_replica(TP, "/b")
    rounds = broker.rounds()
    for _ in range(3):
        next(rounds)
    broker.metadata.commit(
        register(TWO),
        PartitionChangeRecord(
            0,
            TOPIC_ID,
            replicas=(ONE, TWO),
            isr=(TWO,),
            leader=TWO,
            directories=(UUID(int=1001), UUID(int=1002)),
        ),
    )
    log = broker.node.partition().log
    log.truncate_to(5)
    for number in range(5, 40):
        log.append_as_follower(batch(f"w{number}", base_offset=number, leader_epoch=1))
    log.write_pending()
    for _ in rounds:
        pass
    assert broker.home == "/b/orders-0"
    moved = broker.node.partition().log
    moved.high_watermark = moved.log_end_offset
    assert values(moved) == [*broker.written[:5], *(f"w{n}" for n in range(5, 40))]


def test_the_rate_is_kept() -> None:
    broker = Broker(settings={"replica.alter.log.dirs.io.max.bytes.per.second": "1000"})
    broker.start()
    broker.write(30)
    size = broker.node.partition().log.size_bytes
    assert size > 2000
    began_ms = broker.clock.monotonic_ms()
    broker.service.move_replica(TP, "/b")
    for _ in broker.rounds():
        pass
    took_ms = broker.clock.monotonic_ms() - began_ms
    assert took_ms >= size - 1000  # the last pieces go without
    assert broker.home == "/b/orders-0"


def test_acknowledged_after_an_fsync_means_synced_in_the_copy_too() -> None:
    broker = Broker()
    broker.start()
    partition = broker.node.partition()
    copying_config = partition.log.config.__class__(flush_messages=1)
    partition.log.update_config(copying_config)
    waiter = Waiter()
    for number in range(10):
        info = partition.append(memoryview(batch(f"n{number}")), NOW_MS)
        partition.when_committed(info.first_offset, waiter, 0)
        broker.service.mark_dirty(partition)
        broker.scheduler.run()
        broker.node.threads.finish()
        broker.scheduler.run()
    assert len(waiter.outcomes) == 10
    broker.service.move_replica(TP, "/b")
    for _ in broker.rounds():
        pass
    assert broker.home == "/b/orders-0"
    assert partition.log.config is copying_config
    assert partition.log.recovery_point >= 10


def test_invalid_moves_are_refused(broker: Broker) -> None:
    for topic_partition, path, code in [
        (TP, "/c", ErrorCode.log_dir_not_found),
        (TopicPartition("orders", 7), "/b", ErrorCode.unknown_topic_or_partition),
        (TopicPartition("none", 0), "/b", ErrorCode.unknown_topic_or_partition),
    ]:
        with pytest.raises(KafkaError) as refused:
            broker.service.move_replica(topic_partition, path)
        assert refused.value.code is code
    assert broker.dirs() == ["/a/orders-0-0"]


def test_a_replica_that_comes_later_is_made_there(broker: Broker) -> None:
    there = TopicPartition("there", 0)
    broker.metadata.commit(register(TWO), *topic("there", UUID(int=8), replicas=(TWO,)))
    with pytest.raises(KafkaError) as absent:
        broker.service.move_replica(there, "/a")
    assert absent.value.code is ErrorCode.not_leader_or_follower
    broker.metadata.commit(
        PartitionChangeRecord(
            0,
            UUID(int=8),
            replicas=(TWO, ONE),
            directories=(UUID(int=1002), UUID(int=1001)),
        )
    )
    assert broker.service.by_name[there].log.dir == "/a/there-0"


def test_a_partition_whose_log_cannot_be_opened(broker: Broker) -> None:
    assert isinstance(broker.disk, SimDisk)
    broker.disk.fail("/", errno.EIO)
    other = UUID(int=8)
    broker.metadata.commit(*topic("other", other, replicas=(ONE,)))
    assert broker.service.why_missing("other", 0) is ErrorCode.kafka_storage_error
    assert broker.service.why_missing(other.bytes, 0) is ErrorCode.kafka_storage_error
    broker.disk.heal()
    broker.metadata.commit(RemoveTopicRecord(other))
    assert broker.service.why_missing("other", 0) is ErrorCode.unknown_topic_or_partition
