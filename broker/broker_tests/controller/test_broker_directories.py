"""Log directories of brokers: assignments, failures, and what they mean for elections."""

from typing import Any
from uuid import UUID

import pytest

from broker_tests.broker_ids import ids
from broker_tests.controller.active_support import World, directory
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.records import PartitionChangeRecord
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct


class TestDirectories:
    def two_disks(self) -> World:
        world = World(2)
        world.start(3, disks=[0, 1])
        world.topic("t", [(3, 1)])
        world.decide(world.active.assign_replicas_to_dirs(self.assign(world, disk=1)))
        return world

    def assign(self, world: World, *, disk: int, broker: int = 3, **changes: Any) -> Struct:
        partition = Struct(partition_index=changes.get("index", 0))
        topic_id = changes.get("topic_id") or world.image.topics["t"].id
        topic = Struct(topic_id=topic_id, partitions=[partition])
        return Struct(
            broker_id=BrokerId(broker),
            broker_epoch=world.image.brokers[BrokerId(broker)].epoch,
            directories=[Struct(id_=directory(broker, disk), topics=[topic])],
        )

    def test_assigned(self) -> None:
        world = self.two_disks()
        assert world.partition().directories == (directory(3, 1), directory(1))
        assert world.partition().leader_epoch == 0

    def test_a_failed_directory(self) -> None:
        world = self.two_disks()
        world.heartbeat(3, offline=[directory(3, 0)])
        assert world.show() == "leader 3 epoch 0 isr 3,1", "it is on the other one"
        world.start(3, disks=[0, 1])
        world.alter_isr([1, 3])
        world.heartbeat(3, offline=[directory(3, 1)])
        assert world.partition().isr == (1,)
        assert world.image.brokers[BrokerId(3)].log_dirs == (directory(3, 0),)
        offset = world.image.offset
        world.heartbeat(3, offline=[directory(3, 1)])
        assert world.image.offset == offset, "said again, nothing changes"

    def test_without_any_directory_it_is_fenced(self) -> None:
        world = self.two_disks()
        world.heartbeat(3, offline=[directory(3, 1)])
        answer = world.heartbeat(3, offline=[directory(3, 0), directory(3, 1)])
        assert answer.is_fenced
        assert world.image.brokers[BrokerId(3)].fenced
        assert world.show() == "leader 1 epoch 1 isr 1"
        offset = world.image.offset
        answer = world.heartbeat(3, offline=[directory(3, 0), directory(3, 1)])
        assert answer.is_fenced, "it is not let in again"
        assert world.image.offset == offset

    def test_it_does_not_rejoin_while_its_directory_is_offline(self) -> None:
        """1. the leader still counts the replica as caught up and proposes it; 2. the proposal is
        refused each time, and nothing is written to the metadata log."""
        world = self.two_disks()
        world.heartbeat(3, offline=[directory(3, 1)])
        assert world.partition().isr == (1,)
        offset = world.image.offset
        for _ in range(3):
            assert world.alter_isr([1, 3]).error_code is ErrorCode.ineligible_replica
            world.decide(world.active.assign_replicas_to_dirs(self.assign(world, disk=1)))
            world.heartbeat(3, offline=[directory(3, 1)])
        assert world.image.offset == offset
        world.start(3, disks=[0, 1])
        assert world.alter_isr([1, 3]).error_code is ErrorCode.none

    def test_an_unassigned_replica_waits_while_a_directory_is_offline(self) -> None:
        world = self.two_disks()
        unassigned = PartitionChangeRecord(
            0,
            world.image.topics["t"].id,
            leader=BrokerId(1),
            isr=ids(1),
            directories=(UUID(int=0), directory(1)),
        )
        world.decide(ControllerResult([unassigned], Struct()))
        world.heartbeat(3, offline=[directory(3, 1)])
        assert world.alter_isr([1, 3]).error_code is ErrorCode.ineligible_replica
        world.decide(world.active.assign_replicas_to_dirs(self.assign(world, disk=0)))
        assert world.alter_isr([1, 3]).error_code is ErrorCode.none

    def test_a_new_replica_is_not_taken_for_the_lost_one(self) -> None:
        """1. broker 3 is the only one in sync; 2. it comes back without that disk, creates the
        replica on another one and reports it; 3. it must not lead until it has caught up."""
        world = self.two_disks()
        world.alter_isr([3])
        world.start(3, disks=[0])
        request = self.assign(world, disk=0)
        answer = world.decide(world.active.assign_replicas_to_dirs(request))
        assert answer.directories[0].topics[0].partitions[0].error_code is ErrorCode.none
        assert world.partition().leader == -1
        world.elect(1)
        world.alter_isr([1, 3])
        assert world.partition().directories == (directory(3, 0), directory(1))
        world.fence(1)
        assert world.partition().leader == 3

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"topic_id": UUID(int=99)}, ErrorCode.unknown_topic_id),
            ({"index": 5}, ErrorCode.unknown_topic_or_partition),
            ({"broker": 2}, ErrorCode.not_leader_or_follower),
        ],
    )
    def test_refused(self, changes: dict[str, Any], code: ErrorCode) -> None:
        world = self.two_disks()
        request = self.assign(world, disk=0, **changes)
        answer = world.decide(world.active.assign_replicas_to_dirs(request))
        assert answer.directories[0].topics[0].partitions[0].error_code is code
