"""From the metadata log to roles: the three commands, their order, and which are refused."""

from uuid import UUID

import pytest

from broker_tests.log.support import batch
from broker_tests.manual_clock import ManualClock
from broker_tests.partition.support import (
    ONE,
    THREE,
    TOPIC_ID,
    TWO,
    ManualScheduler,
    Metadata,
    Node,
    Waiter,
    register,
    topic,
)
from odradek_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    ResourceType,
)
from odradek_broker.partition import leader_events
from odradek_broker.partition.commands import (
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    commands_of,
)
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, TopicPartition

NOW_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def scheduler(clock: ManualClock) -> ManualScheduler:
    return ManualScheduler(clock)


@pytest.fixture
def metadata() -> Metadata:
    return Metadata()


@pytest.fixture
def node(metadata: Metadata, clock: ManualClock, scheduler: ManualScheduler) -> Node:
    """Broker 1."""
    return Node(ONE, metadata, clock, scheduler)


class Recorded:
    """The calls of the partitions to replication."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.directories: list[tuple[int, UUID]] = []

    def follow(self, partition: Partition) -> None:
        self.calls.append(("follow", partition.topic_partition.partition))

    def unfollow(self, partition: Partition) -> None:
        self.calls.append(("unfollow", partition.topic_partition.partition))

    def propose(self, partition: Partition, proposal: leader_events.Propose) -> None:
        self.calls.append(proposal.proposal.isr_ids)

    def assign_directory(self, partition: Partition, directory_id: UUID) -> None:
        self.directories.append((partition.topic_partition.partition, directory_id))

    def update_metadata(self, image: object) -> None:
        pass


def test_a_deleted_topic_stops_before_one_of_the_same_name_starts(metadata: Metadata) -> None:
    metadata.commit(register(ONE), *topic())
    other = UUID(int=8)
    delta = metadata.commit(RemoveTopicRecord(TOPIC_ID), *topic("orders", other))
    commands = list(commands_of(delta, ONE, 4))
    assert [type(command) for command in commands] == [StopReplica, UpdateMetadata, LeaderAndIsr]
    assert {command.controller_epoch for command in commands if command} == {4}
    stop, _, start = commands
    assert isinstance(stop, StopReplica)
    assert isinstance(start, LeaderAndIsr)
    assert (stop.topic_id, start.topic_id) == (TOPIC_ID, other)
    assert start.is_new


def test_a_replica_that_moved_away_is_stopped_one_that_came_is_new(metadata: Metadata) -> None:
    metadata.commit(register(ONE), *topic(replicas=(ONE, TWO)))
    delta = metadata.commit(
        PartitionChangeRecord(
            0,
            TOPIC_ID,
            isr=(TWO,),
            leader=TWO,
            replicas=(TWO, THREE),
            directories=(UUID(int=1), UUID(int=2)),
        )
    )
    assert StopReplica(1, TopicPartition("orders", 0), TOPIC_ID) in list(commands_of(delta, ONE, 1))
    (_, start) = commands_of(delta, THREE, 1)
    assert isinstance(start, LeaderAndIsr)
    assert start.is_new


def test_roles_come_and_go_with_leader_epochs(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    replication = Recorded()
    node.service.attach(replication)
    metadata.commit(register(ONE), register(TWO), *topic(replicas=(ONE, TWO)))
    partition = node.partition()
    assert partition.leading is not None
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, leader=TWO))
    following = node.partition().following
    assert following is not None
    assert following.leader == TWO
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, leader=ONE))
    assert node.partition().leading is not None
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, isr=(ONE, TWO), leader=BrokerId(-1)))
    assert (node.partition().leading, partition.following) == (None, None)
    assert partition.leader_epoch == 3
    assert replication.calls == [("follow", 0), ("unfollow", 0)]


def test_a_new_leader_begins_its_epoch_in_the_log(node: Node, metadata: Metadata) -> None:
    metadata.commit(register(ONE), *topic(replicas=(ONE,)))
    partition = node.partition()
    partition.append(memoryview(batch("a", "b")), NOW_MS)
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, leader=ONE))
    assert partition.log.epochs.entries == [(0, 0), (1, 2)]


def test_waiting_requests_learn_that_the_leader_is_gone(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    metadata.commit(register(ONE), register(TWO), *topic(replicas=(ONE, TWO)))
    partition = node.partition()
    waiter = Waiter()
    for index in range(2):
        info = partition.append(memoryview(batch("a")), NOW_MS)
        partition.when_committed(info.last_offset, waiter, index)
        node.service.mark_dirty(partition)
    scheduler.run()
    assert waiter.outcomes == []
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, leader=TWO))
    gone = ErrorCode.not_leader_or_follower
    assert waiter.outcomes == [(0, gone), (1, gone)]
    with pytest.raises(KafkaError) as refused:
        partition.append(memoryview(batch("a")), NOW_MS)
    assert refused.value.code is gone
    assert partition.log.written_offset == 2  # the next leader decides about these


def test_acks_all_waits_for_the_followers_and_fails_when_they_were_too_few(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    metadata.commit(
        register(ONE),
        register(TWO),
        ConfigRecord(ResourceType.TOPIC, "orders", "min.insync.replicas", "2"),
        *topic(replicas=(ONE, TWO)),
    )
    partition = node.partition()
    waiter = Waiter()

    def append() -> None:
        info = partition.append(memoryview(batch("a")), NOW_MS)
        partition.when_committed(info.last_offset, waiter, info.last_offset)
        node.service.mark_dirty(partition)
        scheduler.run()

    def fetched(offset: int) -> None:
        event = leader_events.FollowerFetched(TWO, 102, offset, 0, partition.log.written_offset)
        node.service.step(partition, event)

    append()
    fetched(1)
    scheduler.run()
    assert waiter.outcomes == [(0, ErrorCode.none)]
    append()
    fetched(2)
    metadata.commit(
        BrokerRegistrationChangeRecord(TWO, 102, fenced=1),
        PartitionChangeRecord(0, TOPIC_ID, isr=(ONE,)),
    )
    scheduler.run()
    assert waiter.outcomes[1:] == [(1, ErrorCode.not_enough_replicas_after_append)]
    with pytest.raises(KafkaError) as refused:
        partition.check_in_sync_replicas()
    assert refused.value.code is ErrorCode.not_enough_replicas
    append()
    assert len(waiter.outcomes) == 2
    metadata.commit(ConfigRecord(ResourceType.TOPIC, "orders", "min.insync.replicas", "1"))
    scheduler.run()
    assert waiter.outcomes[2:] == [(2, ErrorCode.none)]


def test_an_older_controller_is_refused(node: Node, metadata: Metadata) -> None:
    metadata.controller_epoch = 5
    metadata.commit(register(ONE), *topic(replicas=(ONE, TWO)))
    delta = metadata.commit(PartitionChangeRecord(0, TOPIC_ID, isr=(ONE,)))
    for command in commands_of(delta, ONE, controller_epoch=4):
        assert command is not None
        node.service.execute(command)
    assert node.service.refused_commands == 2


def test_metadata_that_the_controllers_answer_overtook_changes_nothing(
    node: Node, metadata: Metadata
) -> None:
    metadata.commit(register(ONE), register(TWO), *topic(replicas=(ONE, TWO)))
    partition = node.partition()
    assert partition.leading is not None
    partition.leading.partition_epoch = 5  # from the controller's answer
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, isr=(ONE,)))
    assert partition.isr == (ONE, TWO)


def test_a_laggard_is_proposed_to_leave_and_a_live_follower_to_join(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    replication = Recorded()
    node.service.attach(replication)
    metadata.commit(register(ONE), register(TWO), *topic(replicas=(ONE, TWO)))
    node.service.start_timers()
    scheduler.advance(20_000)
    assert replication.calls == []
    scheduler.advance(20_000)
    assert replication.calls == [(ONE,)]


def test_a_broker_that_comes_back_may_join_at_once(node: Node, metadata: Metadata) -> None:
    replication = Recorded()
    node.service.attach(replication)
    metadata.commit(
        register(ONE), register(TWO, fenced=True), *topic(replicas=(ONE, TWO), isr=(ONE,))
    )
    event = leader_events.FollowerFetched(TWO, 102, 0, 0, 0)
    node.service.step(node.partition(), event)
    assert replication.calls == []
    metadata.commit(BrokerRegistrationChangeRecord(TWO, 102, fenced=-1))
    assert replication.calls == [(ONE, TWO)]


def test_no_role_before_the_own_registration_is_known(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    """The metadata log still has the role of the previous process: leader without followers."""
    node.service.await_registration(500)
    metadata.commit(register(ONE, 400), *topic(replicas=(ONE,)))
    node.logs.get_or_create(TopicPartition("gone", 0), UUID(int=9), node.settings.log_config({}))
    assert node.service.by_name == {}
    metadata.commit(register(ONE, 500))
    assert node.partition().leading is not None
    assert node.logs.get(TopicPartition("gone", 0)) is None, "strays are deleted"


def test_a_failed_directory_takes_its_partitions_with_it(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    replication = Recorded()
    node.service.attach(replication)
    metadata.commit(
        register(ONE),
        register(TWO),
        *topic(replicas=(ONE,)),
        *topic("users", UUID(int=8), replicas=(TWO, ONE)),
    )
    node.service.start_timers()
    partition = node.partition()
    waiter = Waiter()
    info = partition.append(memoryview(batch("a")), NOW_MS)
    partition.when_written(info.last_offset, waiter, 0)
    partition.log.log_dir.fail(OSError(5, "I/O error"))
    scheduler.advance(1000)
    assert waiter.outcomes == [(0, ErrorCode.kafka_storage_error)]
    assert node.partition(name="users").following is None
    assert replication.calls[-1] == ("unfollow", 0)


def test_the_time_of_appends_is_that_of_their_pass(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    metadata.commit(register(ONE), *topic(replicas=(ONE,)))
    clock, service = scheduler.clock, node.service
    began_ms = clock.now_ms()
    assert service.append_time_ms() == began_ms
    clock.advance(5)
    assert service.append_time_ms() == began_ms
    scheduler.run()  # the pass ends, though nothing was appended
    service.mark_dirty(node.partition())
    assert service.append_time_ms() == began_ms + 5


def test_a_partition_elsewhere_is_not_an_unknown_one(node: Node, metadata: Metadata) -> None:
    metadata.commit(register(ONE), *topic(replicas=(TWO,)))
    service = node.service
    assert service.why_missing("orders", 0) is ErrorCode.not_leader_or_follower
    assert service.why_missing(TOPIC_ID.bytes, 0) is ErrorCode.not_leader_or_follower
    assert service.why_missing("orders", 1) is ErrorCode.unknown_topic_or_partition
    assert service.why_missing("nope", 0) is ErrorCode.unknown_topic_or_partition
    assert service.why_missing(UUID(int=99).bytes, 0) is ErrorCode.unknown_topic_id


def test_with_flush_messages_nothing_counts_before_the_fsync(
    node: Node, metadata: Metadata, scheduler: ManualScheduler
) -> None:
    metadata.commit(
        register(ONE),
        ConfigRecord(ResourceType.TOPIC, "orders", "flush.messages", "1"),
        *topic(replicas=(ONE,)),
    )
    partition = node.partition()
    waiter = Waiter()
    for index in range(2):
        info = partition.append(memoryview(batch("a")), NOW_MS)
        partition.when_committed(info.last_offset, waiter, index)
        node.service.mark_dirty(partition)
        scheduler.run()
    assert (partition.log.written_offset, partition.high_watermark) == (2, 0)
    node.threads.finish()
    scheduler.run()
    assert partition.high_watermark >= 1
    node.threads.finish()
    scheduler.run()
    assert waiter.outcomes == [(0, ErrorCode.none), (1, ErrorCode.none)]


def test_an_unknown_directory_is_reported_to_the_controller(node: Node, metadata: Metadata) -> None:
    replication = Recorded()
    node.service.attach(replication)
    metadata.commit(register(ONE), *topic(replicas=(ONE, TWO)))
    own = node.partition().log.log_dir.directory_id
    assert replication.directories == [(0, own)]
    metadata.commit(PartitionChangeRecord(0, TOPIC_ID, directories=(own, UUID(int=1))))
    assert len(replication.directories) == 1


def test_an_isolated_leader_refuses_its_producers(
    node: Node, metadata: Metadata, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    """Neither the controller nor a follower is reachable: nothing can be committed any more."""
    metadata.commit(register(ONE), register(TWO), *topic(replicas=(ONE, TWO)))
    node.service.start_timers()
    partition = node.partition()
    waiter = Waiter()
    info = partition.append(memoryview(batch("v")), NOW_MS)
    partition.when_committed(info.first_offset, waiter, 0)
    node.service.mark_dirty(partition)
    scheduler.advance(10_000)
    assert waiter.outcomes == []  # followers are silent, but the controller may shrink the ISR
    assert not node.service.is_isolated_leader(partition)

    node.service.isolation.cut_off = lambda: True
    fetched = leader_events.FollowerFetched(TWO, 102, 0, 0, partition.log.log_end_offset)
    node.service.step(partition, fetched)
    scheduler.advance(1_000)
    assert not node.service.is_isolated_leader(partition)  # an append may be committed
    assert waiter.outcomes == []
    scheduler.advance(5_000)
    assert node.service.is_isolated_leader(partition)
    assert waiter.outcomes == [(0, ErrorCode.not_leader_or_follower)]
    assert partition.leading is not None  # only the controller takes leadership away
