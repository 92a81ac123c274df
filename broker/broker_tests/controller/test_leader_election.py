"""ElectLeaders and the automatic balance of leaders."""

import pytest

from broker_tests.controller.active_support import World
from odradek_broker.controller.rebalance import ELECTIONS_MAX, balance_leaders
from odradek_broker.metadata.records import PartitionChangeRecord
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import (
    BrokerId,
)
from odradek_protocol.messages.struct import Struct

PREFERRED, UNCLEAN = 0, 1


def displaced() -> World:
    """Partitions whose preferred leader is broker 1 are led by others."""
    world = World(3)
    world.topic("t", [(1, 2, 3), (2, 3, 1), (1, 3, 2)])
    world.stop(1)
    world.start(1, clean=True)
    return world


class TestElectLeaders:
    def test_preferred(self) -> None:
        world = displaced()
        assert world.elect(PREFERRED) is ErrorCode.preferred_leader_not_available
        world.alter_isr([2, 3, 1])
        assert world.elect(PREFERRED) is ErrorCode.none
        assert world.show() == "leader 1 epoch 2 isr 2,3,1"
        assert world.elect(PREFERRED) is ErrorCode.election_not_needed

    def test_unclean(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        world.alter_isr([1])
        assert world.elect(UNCLEAN) is ErrorCode.election_not_needed
        world.fence(1)
        assert world.elect(PREFERRED) is ErrorCode.preferred_leader_not_available
        assert world.elect(UNCLEAN) is ErrorCode.none
        assert world.show() == "leader 2 epoch 2 isr 2 recovering"

    def test_unclean_without_a_live_replica(self) -> None:
        world = World(1)
        world.topic("t", [(1,)])
        world.fence(1)
        assert world.elect(UNCLEAN) is ErrorCode.eligible_leaders_not_available

    def test_unknown(self) -> None:
        world = World(1)
        world.topic("t", [(1,)])
        assert world.elect(PREFERRED, "x") is ErrorCode.unknown_topic_or_partition
        assert world.elect(PREFERRED, "t", 7) is ErrorCode.unknown_topic_or_partition
        with pytest.raises(KafkaError) as caught:
            world.elect(7)
        assert caught.value.code is ErrorCode.invalid_request

    def test_electing_all_skips_partitions_that_need_no_election(self) -> None:
        world = displaced()
        world.alter_isr([2, 3, 1])
        request = Struct(election_type=PREFERRED, topic_partitions=None)
        response = world.decide(world.active.elect_leaders(request))
        found = [
            (p.partition_id, p.error_code)
            for p in response.replica_election_results[0].partition_result
        ]
        assert found == [
            (0, ErrorCode.none),
            (2, ErrorCode.preferred_leader_not_available),
        ]

    def test_one_partition_twice_is_one_election(self) -> None:
        world = displaced()
        world.alter_isr([2, 3, 1])
        request = Struct(
            election_type=PREFERRED, topic_partitions=[Struct(topic="t", partitions=[0, 0])]
        )
        result = world.active.elect_leaders(request)
        assert len(result.records) == 1


class TestBalance:
    def test_leaders_return_to_the_preferred_replica(self) -> None:
        world = displaced()
        for index in (0, 2):
            world.alter_isr([world.partition("t", index).leader, 1], "t", index)
        interval_ms = 300_000
        world.active.sessions.timeout_ms = 10 * interval_ms
        world.tick(interval_ms - 1)
        assert world.partition("t", 0).leader == 2
        world.tick(1)
        assert [world.partition("t", i).leader for i in range(3)] == [1, 2, 1]
        offset = world.image.offset
        world.tick(interval_ms)
        assert world.image.offset == offset

    def test_no_rebalancing_where_it_is_switched_off(self) -> None:
        world = World(2, {"auto.leader.rebalance.enable": "false"})
        world.topic("t", [(1, 2)])
        world.active.sessions.timeout_ms = 10**9
        world.stop(1)
        world.start(1, clean=True)
        world.alter_isr([2, 1])
        world.tick(10**6)
        assert world.partition().leader == 2

    def test_a_little_imbalance_may_be_left(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)] * 10)
        topic_id = world.image.topics["t"].id
        world.append(
            [PartitionChangeRecord(index, topic_id, leader=BrokerId(2)) for index in (8, 9)]
        )
        assert len(balance_leaders(world.image, 20)) == 0
        assert len(balance_leaders(world.image, 19)) == 2
        assert len(balance_leaders(world.image)) == 2

    def test_leaders_are_rebalanced_in_batches(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)] * (ELECTIONS_MAX + 5))
        world.stop(1)
        world.start(1, clean=True)
        for index in range(ELECTIONS_MAX + 5):
            world.alter_isr([2, 1], "t", index)
        world.active.sessions.timeout_ms = 10**9
        world.tick(300_000)
        led = [p.leader for p in world.image.topics["t"].partitions.values()]
        assert led.count(BrokerId(1)) == ELECTIONS_MAX
        assert world.active.next_periodic_ms() == 0
        world.tick(1)
        assert {p.leader for p in world.image.topics["t"].partitions.values()} == {1}
