"""Brokers as the controller sees them: registration, sessions, fencing, controlled shutdown."""

from collections.abc import Callable
from uuid import UUID

import pytest

from broker_tests.controller.active_support import CLUSTER_ID, World, directory
from odradek_broker.controller.active import PeriodicTask
from odradek_broker.controller.heartbeats import BrokerState, answer_to
from odradek_broker.controller.voters import may_join, remember_removal
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.metadata.records import RegisterBrokerRecord
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct


def refused(code: ErrorCode, action: Callable[[], object]) -> str:
    with pytest.raises(KafkaError) as caught:
        action()
    assert caught.value.code is code
    return str(caught.value)


class TestRegistration:
    def test_the_epoch_is_the_offset_of_the_record(self) -> None:
        world = World(1)
        world.topic("t", [(1,)])
        before = world.next_offset
        epoch = world.register(1)
        assert epoch == before == world.image.brokers[BrokerId(1)].epoch
        assert world.image.brokers[BrokerId(1)].fenced
        assert world.image.brokers[BrokerId(1)].endpoints["PLAINTEXT"].host == "b1"

    def test_unfenced_when_caught_up_with_its_own_registration(self) -> None:
        world = World(1)
        epoch = world.register(2)
        assert world.heartbeat(2, offset=epoch - 1).is_fenced
        answer = world.heartbeat(2, offset=epoch, want_fence=True)
        assert answer.is_fenced
        assert answer.is_caught_up
        assert not world.heartbeat(2, offset=epoch).is_fenced
        assert not world.image.brokers[BrokerId(2)].fenced

    def test_another_cluster(self) -> None:
        text = refused(
            ErrorCode.inconsistent_cluster_id, lambda: World(1).register(2, cluster_id="other")
        )
        assert text == f"Expected cluster ID {CLUSTER_ID}, but got cluster ID other"

    def test_a_second_broker_with_the_same_id(self) -> None:
        """Refused while the first is alive, and allowed when its session has ended."""
        world = World(2)
        text = refused(
            ErrorCode.duplicate_broker_registration, lambda: world.register(1, disks=[5])
        )
        assert text == "Another broker is registered with that broker id."
        world.now_ms += world.active.sessions.timeout_ms + 1
        world.register(1, disks=[5])
        assert world.image.brokers[BrokerId(1)].log_dirs == (directory(1, 5),)

    def test_the_owner_of_the_directory_need_not_wait(self) -> None:
        """A directory is locked by its process, so the old one is dead."""
        world = World(3)
        world.topic("t", [(1, 2)])
        world.register(1)
        assert world.show() == "leader 2 epoch 1 isr 2"
        assert world.image.brokers[BrokerId(1)].fenced

    def test_registering_the_same_incarnation_again_updates_it(self) -> None:
        world = World(1)
        epoch = world.register(2, incarnation=50)
        world.heartbeat(2)
        assert world.register(2, disks=[0, 1], incarnation=50) == epoch
        broker = world.image.brokers[BrokerId(2)]
        assert not broker.fenced
        assert len(broker.log_dirs) == 2

    @pytest.mark.parametrize(
        ("log_dirs", "reason"),
        [
            ([], "No directories specified in request"),
            ([UUID(int=2)], "Reserved directory ID in request"),
            ([None], "Reserved directory ID in request"),
            ([directory(2), directory(2)], "Duplicate directory ID in request"),
            ([directory(1)], f"Broker 1 is already registered with directory {directory(1)}"),
        ],
    )
    def test_directories(self, log_dirs: list[UUID | None], reason: str) -> None:
        world = World(1)
        request = Struct(
            broker_id=BrokerId(2),
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=7),
            listeners=[],
            features=[],
            rack=None,
            log_dirs=log_dirs,
            previous_broker_epoch=-1,
        )
        register = lambda: world.active.register_broker(request, 9, 0.0)  # noqa: E731
        assert refused(ErrorCode.invalid_registration, register) == reason

    def test_a_feature_that_the_broker_lacks(self) -> None:
        world = World(1)
        request = Struct(
            broker_id=BrokerId(2),
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=7),
            listeners=[],
            features=[
                Struct(name="metadata.version", min_supported_version=1, max_supported_version=25)
            ],
            rack=None,
            log_dirs=[directory(2)],
            previous_broker_epoch=-1,
        )
        text = refused(
            ErrorCode.unsupported_version, lambda: world.active.register_broker(request, 9, 0.0)
        )
        assert text == (
            "Unable to register because the broker does not support finalized version 30 of "
            "metadata.version. The broker wants a version between 1 and 25, inclusive."
        )

    def test_the_registration_comes_before_its_effects(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        world.incarnations += 1
        world.fence(1)
        world.start(1, clean=True)
        world.alter_isr([2, 1])
        existing = world.image.brokers[BrokerId(1)]
        request = Struct(
            broker_id=existing.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=777),
            listeners=[],
            features=[
                Struct(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in SUPPORTED_FEATURES
            ],
            rack=None,
            log_dirs=list(existing.log_dirs),
            previous_broker_epoch=-1,
        )
        result = world.active.register_broker(request, world.next_offset, world.now_ms)
        assert isinstance(result.records[0], RegisterBrokerRecord)
        assert result.records[0].broker_epoch == world.next_offset
        assert len(result.records) == 2


class TestSessions:
    def test_a_silent_broker_is_fenced_and_a_heartbeat_unfences_it(self) -> None:
        world = World(3)
        timeout_ms = world.active.sessions.timeout_ms
        world.topic("t", [(1, 2, 3)])
        assert world.active.next_periodic_ms() == timeout_ms
        world.tick(timeout_ms)
        assert world.live() == [1, 2, 3], "a session is over after its time, not at it"
        world.heartbeat(2)
        world.tick(1)
        assert world.live() == [2]
        assert world.show() == "leader 2 epoch 1 isr 2"
        assert not world.heartbeat(3).is_fenced, "it was only slow"
        assert world.live() == [2, 3]

    def test_a_new_controller_gives_everybody_a_full_session(self) -> None:
        world = World(2)
        timeout_ms = world.active.sessions.timeout_ms
        world.now_ms += timeout_ms * 0.9
        world.fail_over()
        world.tick(timeout_ms)
        assert world.live() == [1, 2]
        world.tick(1)
        assert world.live() == []

    def test_a_broken_connection_shortens_the_session(self) -> None:
        world = World(3)
        grace_ms = 2 * world.settings.int("broker.heartbeat.interval.ms")
        assert grace_ms < world.active.sessions.timeout_ms
        world.topic("t", [(1, 2, 3)])
        for broker in (1, 2):
            world.active.lost_contact(BrokerId(broker), world.now_ms)
        assert world.active.next_periodic_ms() == grace_ms
        world.heartbeat(2)  # it is alive: only its connection was cut
        world.tick(grace_ms)
        assert world.live() == [1, 2, 3]
        world.tick(1)
        assert world.live() == [2, 3]
        assert world.show() == "leader 2 epoch 1 isr 2,3"
        assert not world.heartbeat(1).is_fenced, "it was only slow"

    def test_heartbeats_of_an_old_incarnation_are_refused(self) -> None:
        world = World(2)
        request = Struct(
            broker_id=BrokerId(1),
            broker_epoch=world.image.brokers[BrokerId(1)].epoch - 1,
            current_metadata_offset=100,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=[],
        )
        text = refused(
            ErrorCode.stale_broker_epoch,
            lambda: world.active.heartbeat(request, world.next_offset, 0.0),
        )
        epoch = world.image.brokers[BrokerId(1)].epoch
        assert text == f"Expected broker epoch {epoch}, but got broker epoch {epoch - 1}"
        request.broker_id = BrokerId(9)
        text = refused(
            ErrorCode.stale_broker_epoch,
            lambda: world.active.heartbeat(request, world.next_offset, 0.0),
        )
        assert text == "No broker registration found for broker id 9"

    def test_a_leader_that_was_fenced_only_half(self) -> None:
        """The controller died between two batches: the next controller writes the rest."""
        world = World(2)
        world.topic("t", [(1, 2)])
        fencing = world.active.decide_periodic(PeriodicTask.FENCE_SILENT_BROKERS, 10**6)
        world.append(fencing.records[:2])  # only the brokers' records, not the partitions'
        assert world.partition().leader == 1
        world.fail_over()
        assert world.partition().leader == -1


class TestControlledShutdown:
    def test_leaders_move_before_it_may_stop(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2, 3), (2, 1, 3)])
        answer = world.heartbeat(1, want_shut_down=True)
        assert not answer.should_shut_down
        assert world.show(index=0) == "leader 2 epoch 1 isr 2,3"
        assert world.show(index=1) == "leader 2 epoch 0 isr 2,3"
        assert world.image.brokers[BrokerId(1)].in_controlled_shutdown
        moved_at = world.image.offset
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down
        world.heartbeat(2, offset=moved_at)
        world.heartbeat(3, offset=moved_at - 1)
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down, "3 does not know yet"
        world.heartbeat(3, offset=moved_at)
        answer = world.heartbeat(1, want_shut_down=True)
        assert answer.should_shut_down
        assert answer.is_fenced
        assert world.image.brokers[BrokerId(1)].fenced

    def test_a_broker_without_leaderships_may_stop_at_once(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        assert world.heartbeat(2, want_shut_down=True).should_shut_down
        assert world.show() == "leader 1 epoch 0 isr 1"

    def test_a_fenced_one_may_stop_at_once(self) -> None:
        world = World(1)
        world.register(2)
        assert world.heartbeat(2, want_shut_down=True).should_shut_down

    def test_a_partition_without_another_leader_goes_offline(self) -> None:
        world = World(2)
        world.topic("t", [(1,)])
        world.stop(1)
        assert world.show() == "leader -1 epoch 1 isr 1"
        world.start(1, clean=True)
        assert world.show() == "leader 1 epoch 2 isr 1"
        assert not world.image.brokers[BrokerId(1)].in_controlled_shutdown

    def test_two_brokers_stop_at_once(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2, 3)])
        world.heartbeat(1, want_shut_down=True)
        world.heartbeat(2, want_shut_down=True)
        assert world.show() == "leader 3 epoch 2 isr 3"

    def test_a_controlled_shutdown_continues_under_a_new_controller(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        world.heartbeat(1, want_shut_down=True)
        world.fail_over()
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down
        world.heartbeat(2)
        assert world.heartbeat(1, want_shut_down=True).should_shut_down

    def test_no_new_replicas_on_one_that_stops(self) -> None:
        world = World(2)
        world.topic("t", [(1, 2)])
        world.heartbeat(1, want_shut_down=True)
        assert world.alter_isr([2, 1]).error_code is ErrorCode.ineligible_replica


def test_the_answers_to_a_heartbeat_are_kafkas() -> None:
    """All 128 cases, as BrokerHeartbeatManager's switch has them."""
    for state in (BrokerState.FENCED, BrokerState.UNFENCED, BrokerState.CONTROLLED_SHUTDOWN):
        for bits in range(32):
            fence, stop, caught_up, leads, may_stop = (bool(bits >> i & 1) for i in range(5))
            answer = answer_to(
                state,
                want_fence=fence,
                want_shut_down=stop,
                caught_up=caught_up,
                leads=leads,
                may_stop=may_stop,
            )
            if state is BrokerState.FENCED:
                expected = BrokerState.FENCED
                if stop:
                    expected = BrokerState.SHUTDOWN_NOW
                elif not fence and caught_up:
                    expected = BrokerState.UNFENCED
            elif state is BrokerState.UNFENCED:
                expected = BrokerState.UNFENCED
                if fence:
                    expected = BrokerState.SHUTDOWN_NOW if stop else BrokerState.FENCED
                elif stop:
                    expected = (
                        BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
                    )
            else:
                expected = state
                if not leads and may_stop:
                    expected = BrokerState.SHUTDOWN_NOW
            assert answer is expected


class TestUnregister:
    def test_an_unregistered_broker_is_removed_from_the_metadata(self) -> None:
        world = World(3)
        world.topic("t", [(1, 2), (2, 1)])
        answer = world.decide(world.active.unregister_broker(Struct(broker_id=BrokerId(1))))
        assert answer.error_code is ErrorCode.none
        assert 1 not in world.image.brokers
        assert world.show(index=0) == "leader 2 epoch 1 isr 2"
        assert world.show(index=1) == "leader 2 epoch 0 isr 2"

    def test_a_later_broker_with_its_id_may_vote(self) -> None:
        world = World(3)
        world.decide(remember_removal(world.image, 1))
        assert not may_join(world.image, 1)
        world.decide(world.active.unregister_broker(Struct(broker_id=BrokerId(1))))
        assert may_join(world.image, 1)

    def test_unknown(self) -> None:
        world = World(1)
        text = refused(
            ErrorCode.broker_id_not_registered,
            lambda: world.active.unregister_broker(Struct(broker_id=BrokerId(5))),
        )
        assert text == "Broker ID 5 is not currently registered"
