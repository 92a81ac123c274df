"""AlterPartition: which ISRs a leader may propose, and which fields change with the ISR."""

import pytest

from broker_tests.controller.active_support import World
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct


def world() -> World:
    made = World(4)
    made.topic("t", [(1, 2, 3)])
    return made


def ask(world: World, request: Struct) -> ErrorCode:
    answer = world.decide(world.active.alter_partition(request))
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


class TestAccepted:
    def test_shrink_and_expand(self) -> None:
        w = world()
        answer = w.alter_isr([1, 3])
        assert answer.error_code is ErrorCode.none
        assert (answer.leader_id, answer.leader_epoch, answer.partition_epoch) == (1, 0, 1)
        assert answer.isr == (1, 3)
        assert w.show() == "leader 1 epoch 0 isr 1,3"
        assert w.alter_isr([1, 3, 2]).partition_epoch == 2
        assert w.show() == "leader 1 epoch 0 isr 1,3,2"

    def test_no_change(self) -> None:
        w = world()
        answer = w.alter_isr([1, 2, 3])
        assert answer.error_code is ErrorCode.none
        assert answer.partition_epoch == 0

    def test_version_2_without_broker_epochs(self) -> None:
        w = world()
        request = w.proposal(w.partition(), [1], "t", 0)
        asked = request.topics[0].partitions[0]
        asked.new_isr, asked.new_isr_with_epochs = [1, 2], []
        assert ask(w, request) is ErrorCode.none
        assert w.show() == "leader 1 epoch 0 isr 1,2"


class TestRefused:
    @pytest.mark.parametrize(
        ("field", "change", "code"),
        [
            ("leader_epoch", 1, ErrorCode.not_controller),
            ("partition_epoch", 1, ErrorCode.not_controller),
            ("leader_epoch", -1, ErrorCode.fenced_leader_epoch),
            ("partition_epoch", -1, ErrorCode.invalid_update_version),
        ],
    )
    def test_wrong_epochs_are_refused(self, field: str, change: int, code: ErrorCode) -> None:
        w = world()
        w.heartbeat(1, want_fence=True)
        w.alter_isr([2, 3])
        request = w.proposal(w.partition(), [2], "t", 0)
        asked = request.topics[0].partitions[0]
        setattr(asked, field, getattr(asked, field) + change)
        offset = w.image.offset
        assert ask(w, request) is code
        assert w.image.offset == offset

    @pytest.mark.parametrize("isr", [[2, 3], [1, 4], [1, 1, 2], []])
    def test_an_invalid_isr_is_refused(self, isr: list[int]) -> None:
        w = world()
        assert w.alter_isr(isr).error_code is ErrorCode.invalid_request

    def test_a_follower_may_not_change_the_isr(self) -> None:
        w = world()
        request = w.proposal(w.partition(), [1, 2], "t", 0)
        request.broker_id, request.broker_epoch = BrokerId(2), w.image.brokers[BrokerId(2)].epoch
        assert ask(w, request) is ErrorCode.invalid_request

    def test_a_fenced_member(self) -> None:
        w = world()
        w.fence(2)
        assert w.alter_isr([1, 2, 3]).error_code is ErrorCode.ineligible_replica

    def test_a_member_that_was_restarted_since_it_caught_up(self) -> None:
        w = world()
        w.alter_isr([1, 3])
        request = w.proposal(w.partition(), [1, 2, 3], "t", 0)
        w.start(2)
        assert ask(w, request) is ErrorCode.ineligible_replica
        w2 = world()
        request = w2.proposal(w2.partition(), [1, 2], "t", 0)
        request.topics[0].partitions[0].new_isr_with_epochs[1].broker_epoch = -1
        assert ask(w2, request) is ErrorCode.none, "-1: the leader does not know"

    def test_recovery_state(self) -> None:
        w = world()
        request = w.proposal(w.partition(), [1], "t", 0)
        request.topics[0].partitions[0].leader_recovery_state = 1
        assert ask(w, request) is ErrorCode.invalid_request
        request.topics[0].partitions[0].leader_recovery_state = 5
        assert ask(w, request) is ErrorCode.invalid_request

    def test_unknown_topics_and_partitions_are_refused(self) -> None:
        w = world()
        request = w.proposal(w.partition(), [1], "t", 0)
        request.topics[0].partitions[0].partition_index = 7
        assert ask(w, request) is ErrorCode.unknown_topic_or_partition
        request = w.proposal(w.partition(), [1], "t", 0)
        request.topics[0].topic_id = w.image.topics["t"].id.__class__(int=5)
        assert ask(w, request) is ErrorCode.unknown_topic_id

    def test_another_broker_epoch_is_refused(self) -> None:
        w = world()
        request = w.proposal(w.partition(), [1], "t", 0)
        request.broker_epoch += 1
        with pytest.raises(KafkaError) as caught:
            w.active.alter_partition(request)
        assert caught.value.code is ErrorCode.stale_broker_epoch

    def test_one_partition_twice_in_a_request(self) -> None:
        w = world()
        request = w.proposal(w.partition(), [1], "t", 0)
        request.topics[0].partitions *= 2
        answer = w.decide(w.active.alter_partition(request))
        codes = [partition.error_code for partition in answer.topics[0].partitions]
        assert codes == [ErrorCode.none, ErrorCode.invalid_request]
