"""Leader elections: the four strategies, and partitions in the cases that lose data."""

import itertools
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.broker_ids import (
    ids,
)
from broker_tests.controller.active_support import World, directory, set_config
from odradek_broker.controller import brokers
from odradek_broker.controller.elections import (
    NO_CANDIDATE,
    ElectionKind,
    elect_for_controlled_shutdown,
    elect_for_offline_partition,
    elect_for_reassignment,
    elect_preferred_replica,
)
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct
from odradek_testkit.work import Steps, grows_linearly

STEPS_PER_PARTITION_MAX = 400  # 220 when it was measured
REPLICAS = st.permutations([1, 2, 3, 4, 5])
SOME = st.sets(st.integers(1, 5))


class TestStrategies:
    def test_first_live_in_sync_replica_in_assignment_order(self) -> None:
        assert elect_for_offline_partition(ids(3, 1), ids(1, 2, 3)).leader == 3
        assert elect_for_reassignment(ids(3, 1, 2), ids(1, 2, 3), ids(2, 1)).leader == 1
        assert elect_preferred_replica(ids(2, 3), ids(2, 3), ids(2, 1, 3)).leader == 2
        assert elect_for_controlled_shutdown(ids(2, 3), ids(2, 3), ids(2)).leader == 3

    def test_without_a_candidate_nobody_is_elected(self) -> None:
        assert elect_for_offline_partition(ids(4), ids(1, 2)) is NO_CANDIDATE
        assert elect_for_reassignment(ids(1), ids(1), ids(2)) is NO_CANDIDATE
        assert elect_preferred_replica(ids(2, 3), ids(2, 3), ids(1, 2, 3)) is NO_CANDIDATE
        assert elect_for_controlled_shutdown(ids(2), ids(2), ids(2)) is NO_CANDIDATE

    def test_an_offline_partition_prefers_clean_then_eligible_then_unclean(self) -> None:
        assert (
            elect_for_offline_partition(ids(5, 4, 3), ids(3), ids(4), unclean=True).kind
            is ElectionKind.CLEAN
        )
        eligible = elect_for_offline_partition(ids(5, 4), ids(3), ids(4), unclean=True)
        assert eligible == (4, ElectionKind.ELIGIBLE)
        assert elect_for_offline_partition(ids(5), ids(3), ids(4), unclean=True) == (
            5,
            ElectionKind.UNCLEAN,
        )
        assert elect_for_offline_partition(ids(5), ids(3), ids(4)) is NO_CANDIDATE
        assert elect_for_offline_partition(ids(), ids(3), ids(4), unclean=True) is NO_CANDIDATE

    @given(REPLICAS, SOME, SOME, SOME, SOME)
    def test_elections_agree_with_a_filter(
        self,
        assignment: list[BrokerId],
        alive: set[BrokerId],
        isr: set[BrokerId],
        target: set[BrokerId],
        stopping: set[BrokerId],
    ) -> None:
        """The first replica of the assignment for which all conditions hold, as a filter."""
        live = [replica for replica in assignment if replica in alive]

        def first(*conditions: Collection[BrokerId]) -> int:
            fitting = [r for r in assignment if all(r in condition for condition in conditions)]
            return fitting[0] if fitting else -1

        assert elect_for_offline_partition(live, isr).leader == first(alive, isr)
        assert elect_for_reassignment(live, isr, target).leader == first(alive, isr, target)
        assert elect_preferred_replica(live, isr, assignment).leader == first(
            alive, isr, assignment[:1]
        )
        not_stopping = set(assignment) - stopping
        assert elect_for_controlled_shutdown(live, isr, stopping).leader == first(
            alive, isr, not_stopping
        )


class TestFencing:
    def test_leaders_move_and_the_isr_shrinks(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        world.fence(1)
        assert world.show(index=0) == "leader 2 epoch 1 isr 2,3"
        assert world.show(index=1) == "leader 2 epoch 0 isr 2,3"
        assert world.show(index=2) == "leader 3 epoch 0 isr 3,2"
        assert world.image.brokers[BrokerId(1)].fenced

    def test_the_last_of_the_isr_stays(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2)])
        world.fence(1)
        world.fence(2)
        assert world.show() == "leader -1 epoch 2 isr 2"

    def test_an_isr_that_is_fenced_at_once_stays(self) -> None:
        """No replica committed anything without the others, so each of them has all records."""
        world = World(3)
        world.topic("t", [(1, 2)])
        world.fence(1, 2)
        assert world.show() == "leader -1 epoch 1 isr 1,2"
        world.start(2, clean=True)
        assert world.show() == "leader -1 epoch 1 isr 1"
        world.start(1)
        assert world.show() == "leader 1 epoch 2 isr 1"

    def test_no_unclean_election_unless_it_is_allowed(self) -> None:
        world = World(3)
        world.topic("safe", [(1, 2)])
        world.topic("quick", [(1, 2)], {"unclean.leader.election.enable": "true"})
        for name in ("safe", "quick"):
            world.alter_isr([1], name)
        world.fence(1)
        assert world.show("safe") == "leader -1 epoch 1 isr 1"
        assert world.show("quick") == "leader 2 epoch 1 isr 2 recovering"
        assert world.alter_isr([2], "quick").leader_recovery_state == 0
        assert world.show("quick") == "leader 2 epoch 1 isr 2"

    def test_unclean_for_all_by_the_brokers_setting(self) -> None:
        world = World(2, {"unclean.leader.election.enable": "true"})
        world.topic("t", [(1, 2)])
        world.alter_isr([1])
        world.fence(1)
        assert world.show() == "leader 2 epoch 1 isr 2 recovering"

    def test_unclean_election_that_is_allowed_afterwards(self) -> None:
        """The controller checks every unclean.leader.election.interval.ms."""
        world = World(2, {"broker.session.timeout.ms": str(10**9)})
        world.topic("t", [(1, 2)])
        world.alter_isr([1])
        world.heartbeat(1, want_fence=True)
        world.settings.apply_dynamic({"unclean.leader.election.enable": "true"}, {})
        world.tick(200_000)
        assert world.show() == "leader -1 epoch 1 isr 1"
        world.tick(100_000)
        assert world.show() == "leader 2 epoch 2 isr 2 recovering"


class TestEligible:
    """KIP-966: a replica that left an ISR below min.insync.replicas has all committed records."""

    def world(self) -> World:
        world = World(3)
        world.topic("t", [(1, 2, 3)], {"min.insync.replicas": "2"})
        return world

    def test_a_replica_that_leaves_below_min_isr_is_eligible(self) -> None:
        world = self.world()
        world.fence(1)
        assert world.show() == "leader 2 epoch 1 isr 2,3"
        world.stop(3)
        assert world.show() == "leader 2 epoch 1 isr 2 elr 3"
        world.start(3, clean=True)
        assert world.show() == "leader 2 epoch 1 isr 2 elr 3"
        world.fence(2)
        assert world.show() == "leader 3 epoch 2 isr 3 elr 2"
        world.start(2)
        assert world.show() == "leader 3 epoch 2 isr 3 last 2"
        world.alter_isr([3, 2])
        assert world.show() == "leader 3 epoch 2 isr 3,2"

    def test_a_lagging_follower_becomes_eligible_too(self) -> None:
        world = self.world()
        world.alter_isr([1, 2])
        world.alter_isr([1])
        assert world.show() == "leader 1 epoch 0 isr 1 elr 2"
        world.fence(1)
        assert world.show() == "leader 2 epoch 1 isr 2 elr 1"

    def test_an_unclean_stop_removes_a_replica_from_the_eligible_ones(self) -> None:
        world = self.world()
        world.alter_isr([1, 2])
        world.fence(2)
        assert world.show() == "leader 1 epoch 0 isr 1 elr 2"
        world.start(2)  # it may have lost its newest records
        assert world.show() == "leader 1 epoch 0 isr 1 last 2"
        world.fence(1)
        assert world.show() == "leader -1 epoch 1 isr 1 last 2"
        world.start(1)
        assert world.show() == "leader 1 epoch 2 isr 1 last 2"

    def test_they_take_the_place_of_the_last_one_that_stopped_uncleanly(self) -> None:
        """It may have lost committed records. (In the simulation it was elected.)"""
        world = self.world()
        world.alter_isr([1, 2])
        world.fence(2)
        world.fence(1)
        assert world.show() == "leader -1 epoch 1 isr 1 elr 2"
        world.start(1)  # broker 2 is only cut off
        assert world.show() == "leader -1 epoch 1 isr 2 last 1"
        world.heartbeat(2)
        assert world.show() == "leader 2 epoch 2 isr 2 last 1"

    def test_an_unclean_election_clears_the_eligible_replicas(self) -> None:
        """Committed records may be lost then, so no replica is known to have all of them."""
        world = World(4)
        configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
        world.topic("t", [(1, 2, 3, 4)], configs)
        world.alter_isr([1, 2])
        world.alter_isr([1])
        assert world.show() == "leader 1 epoch 0 isr 1 elr 2"
        world.fence(1, 2)
        assert world.show() == "leader 3 epoch 1 isr 3 recovering"

    def test_with_min_isr_1_no_replica_is_eligible(self) -> None:
        """The leader may have committed alone since then."""
        world = World(2)
        world.topic("t", [(1, 2)])
        world.alter_isr([1])
        assert world.show() == "leader 1 epoch 0 isr 1"
        world.fence(1)
        assert world.show() == "leader -1 epoch 1 isr 1"

    def test_a_lower_min_isr_clears_the_eligible_replicas(self) -> None:
        world = self.world()
        world.alter_isr([1])
        assert world.show() == "leader 1 epoch 0 isr 1 elr 2,3"
        change = set_config("t", "min.insync.replicas", "1")
        world.decide(world.active.incremental_alter_configs(change))
        assert world.show() == "leader 1 epoch 0 isr 1"

    def test_a_lower_default_min_isr_clears_the_eligible_replicas(self) -> None:
        world = World(3)
        world.decide(
            world.active.incremental_alter_configs(set_config("", "min.insync.replicas", "2", 4))
        )
        world.topic("t", [(1, 2, 3)])
        world.alter_isr([1])
        assert world.show() == "leader 1 epoch 0 isr 1 elr 2,3"
        world.decide(
            world.active.incremental_alter_configs(set_config("", "min.insync.replicas", "1", 4))
        )
        assert world.show() == "leader 1 epoch 0 isr 1"


class TestEmptyDisk:
    """A broker that comes back without its disk leads nothing while others hold data."""

    def test_it_leaves_the_isr(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2, 3)])
        world.start(1, disks=[9])
        assert world.show() == "leader 2 epoch 1 isr 2,3"

    @pytest.mark.parametrize("order", [*itertools.permutations((1, 2, 3))])
    def test_all_were_killed_and_one_has_lost_its_disk(self, order: tuple[int, int, int]) -> None:
        """1. all three die at once; 2. they come back in any order, 1 with an empty disk;
        3. the leader is one of the two that hold data."""
        world = World(3)
        world.topic("t", [(1, 2, 3)], {"min.insync.replicas": "2"})
        world.fail_over()
        dead = [1, 2, 3]
        for broker in order:
            if broker == 1:
                world.fence(*dead)  # with another disk, its old session has to end first
            world.register(broker, [9] if broker == 1 else [0])
            dead.remove(broker)
        for broker in order:
            world.heartbeat(broker)
        assert world.partition().leader in (2, 3)
        assert 1 not in world.partition().isr
        leader = world.partition().leader
        world.alter_isr([leader, *(b for b in (1, 2, 3) if b != leader)])
        assert world.show().endswith("isr {},{},{}".format(leader, *{1, 2, 3} - {leader}))
        world.heartbeat(leader, want_fence=True)
        assert world.partition().leader in {1, 2, 3} - {leader}, "it has caught up"

    def test_without_its_disk_the_last_in_sync_replica_is_not_elected(self) -> None:
        """With min.insync.replicas=1 no other replica is known to have all committed records."""
        world = World(2)
        world.topic("t", [(1, 2)])
        world.alter_isr([1])
        world.start(1, disks=[9])
        assert world.show() == "leader -1 epoch 1 isr 1"
        assert world.elect(1).name == "none", "an operator may decide otherwise"
        assert world.show() == "leader 2 epoch 2 isr 2 recovering"

    def test_the_right_disk_comes_back(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        world.alter_isr([1])
        world.start(1, disks=[9])
        world.start(1, disks=[0])
        assert world.show() == "leader 1 epoch 2 isr 1"

    def test_unclean_election_prefers_those_that_hold_data(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2, 3)], {"unclean.leader.election.enable": "true"})
        world.alter_isr([1])
        world.start(2, disks=[9])
        world.fence(1)
        assert world.show() == "leader 3 epoch 1 isr 3 recovering"

    def test_unclean_election_waits_for_one_that_holds_data(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)], {"unclean.leader.election.enable": "true"})
        world.alter_isr([1])
        world.start(2, disks=[9])
        world.fence(1)
        assert world.show() == "leader -1 epoch 1 isr 1"

    def test_all_disks_are_lost(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        world.start(1, disks=[9])
        world.start(2, disks=[9])
        assert world.partition().leader == -1
        assert world.elect(1).name == "none"
        assert world.partition().leader == 1

    def test_the_only_replica_starts_with_an_empty_log(self) -> None:
        world = World(1)
        world.topic("t", [(1,)])
        world.start(1, disks=[9])
        assert world.show() == "leader 1 epoch 2 isr 1"

    def test_a_failed_disk_of_several_is_waited_for(self) -> None:
        world = World(2)
        world.start(1, disks=[0, 1])
        world.topic("t", [(1,)])
        world.decide(world.active.assign_replicas_to_dirs(assignment(world, 1, 0)))
        world.start(1, disks=[1])
        assert world.partition().leader == -1
        world.start(1, disks=[0, 1])
        assert world.partition().leader == 1


def assignment(
    world: World, broker: int, disk: int, topic: str = "t", epoch: int | None = None
) -> Any:
    return Struct(
        broker_id=broker,
        broker_epoch=world.image.brokers[BrokerId(broker)].epoch if epoch is None else epoch,
        directories=[
            Struct(
                id_=directory(broker, disk),
                topics=[
                    Struct(
                        topic_id=world.image.topics[topic].id,
                        partitions=[Struct(partition_index=0)],
                    )
                ],
            )
        ],
    )


def test_deciding_about_twice_as_many_partitions_is_twice_the_work() -> None:
    """A broker dies: each of its leaders gets another one."""

    def steps(partitions: int) -> Steps:
        world = World(3)
        orders = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
        world.topic("t", [orders[i % 3] for i in range(partitions)], {"min.insync.replicas": "2"})
        with Steps() as counted:
            records = brokers.fence(world.image, ids(1), unclean_default=False)
        assert len(records) == partitions + 1
        return counted

    small, large = steps(2_000), steps(4_000)
    grows_linearly(small, large)
    assert large.count < STEPS_PER_PARTITION_MAX * 4_000
