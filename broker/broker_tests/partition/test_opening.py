"""A thousand new partitions at once: opened in slices, files in threads, requested ones first.

The clock advances by a millisecond with each reading, so a slice ends after about ten commands.
"""

import pytest

from broker_tests.manual_clock import ManualClock
from broker_tests.partition.support import (
    ONE,
    TOPIC_ID,
    TWO,
    ManualScheduler,
    Metadata,
    Node,
    NoThreads,
    register,
    topic,
)
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from odradek_broker.partition.opening import AT_A_TIME
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition

MANY = 200


class TickingClock(ManualClock):
    def monotonic_ms(self) -> float:
        self._monotonic_ms += 1.0
        return self._monotonic_ms


class Story:
    def __init__(self) -> None:
        self.clock = TickingClock()
        self.scheduler = ManualScheduler(self.clock)
        self.metadata = Metadata()
        self.threads = NoThreads()
        self.disk = SimDisk()
        self.node = Node(
            ONE, self.metadata, self.clock, self.scheduler, disk=self.disk, threads=self.threads
        )
        self.service = self.node.service
        self.metadata.commit(register(ONE), register(TWO))

    def create(self, name: str = "orders", partitions: int = MANY) -> None:
        self.metadata.commit(*topic(name, TOPIC_ID, replicas=(ONE, TWO), partitions=partitions))
        self.scheduler.run()

    def run(self) -> None:
        """Runs threads and slices until nothing is left to do."""
        while self.threads.jobs:
            self.threads.finish()
            self.scheduler.run()

    def missing(self, index: int, name: str = "orders") -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.service.get(name, index)
        return refused.value.code


def test_some_are_opened_at_once_and_all_in_the_end() -> None:
    story = Story()
    story.create()
    opened = len(story.service.by_name)
    assert 0 < opened < MANY / 2
    assert not story.service.settled
    assert story.service.is_opening("orders")
    assert story.missing(MANY - 1) is ErrorCode.not_leader_or_follower, "to be asked again"
    story.run()
    assert story.service.settled
    assert not story.service.is_opening("orders")
    assert all(story.node.partition(index).leading for index in range(MANY))
    assert len(story.node.logs.logs) == MANY


def test_a_requested_partition_is_opened_next() -> None:
    story = Story()
    story.create()
    story.threads.finish()  # the one that was being opened
    story.scheduler.run()
    assert story.missing(MANY - 1) is ErrorCode.not_leader_or_follower
    story.threads.finish()
    story.scheduler.run()
    story.threads.finish()
    story.scheduler.run()
    assert ("orders", MANY - 1) in story.service.by_name
    assert len(story.service.by_name) < MANY - AT_A_TIME


def test_a_partition_is_opened_with_the_newest_change() -> None:
    story = Story()
    story.create()
    last = MANY - 1
    story.metadata.commit(PartitionChangeRecord(last, TOPIC_ID, leader=TWO))
    story.run()
    partition = story.node.partition(last)
    assert partition.leading is None
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
    assert story.service.by_name["orders", 0].leading is not None


def test_a_change_of_an_open_partition_does_not_wait_for_unopened_ones() -> None:
    story = Story()
    story.create()
    story.metadata.commit(PartitionChangeRecord(0, TOPIC_ID, leader=TWO))
    story.scheduler.run()
    assert story.service.by_name["orders", 0].leading is None
    assert not story.service.settled


def test_a_topic_that_is_deleted_before_it_was_opened_leaves_nothing() -> None:
    story = Story()
    story.create()
    story.metadata.commit(RemoveTopicRecord(TOPIC_ID))
    story.scheduler.run()
    story.run()
    assert story.service.by_name == {}
    assert story.node.logs.logs == {}
    assert story.service.settled
    assert story.missing(0) is ErrorCode.unknown_topic_or_partition
    names = [entry.name for entry in story.disk.scan("/data") if entry.name.startswith("orders")]
    assert all(name.endswith("-delete") for name in names)


def test_a_topic_of_the_same_name_takes_its_place() -> None:
    story = Story()
    story.create()
    other = type(TOPIC_ID)(int=8)
    story.metadata.commit(RemoveTopicRecord(TOPIC_ID))
    story.metadata.commit(*topic("orders", other, replicas=(ONE, TWO), partitions=MANY))
    story.scheduler.run()
    story.run()
    assert len(story.service.by_name) == MANY
    assert {log.topic_id for log in story.node.logs.logs.values()} == {other}


def test_a_newer_controller_does_not_get_its_commands_refused_for_older_ones() -> None:
    story = Story()
    story.create()
    story.metadata.controller_epoch = 9
    story.metadata.commit(PartitionChangeRecord(MANY - 1, TOPIC_ID, leader=TWO))
    story.run()
    assert story.service.refused_commands == 0
    assert len(story.service.by_name) == MANY


def test_a_disk_that_fails_while_opening_is_a_storage_error() -> None:
    story = Story()
    story.create()
    for log_dir in story.node.logs.dirs:
        log_dir.fail(OSError(5, "Input/output error"))
    story.run()
    assert story.service.settled
    assert story.missing(MANY - 1) is ErrorCode.kafka_storage_error


def test_a_broker_that_stops_opens_no_more() -> None:
    story = Story()
    story.create()
    opened = len(story.service.by_name)
    story.service.stop_commands()
    story.run()
    assert len(story.service.by_name) == opened
    assert story.service.settled


def test_a_log_on_the_disk_is_opened_without_a_thread() -> None:
    story = Story()
    story.create()
    story.run()
    config = story.service._hosting.config_of("orders")
    known = TopicPartition("orders", 0)
    assert story.node.logs.creation(known, TOPIC_ID, config, is_new=False) is None
