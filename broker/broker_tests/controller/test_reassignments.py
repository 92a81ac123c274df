"""Moving partitions: begin, progress, completion, cancel; messages and error codes as in Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.controller.active_support import World
from odradek_broker.controller.reassignments import list_partition_reassignments
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct


def world(configs: dict[str, str] | None = None) -> World:
    made = World(6)
    made.topic("t", [(1, 2, 3)], configs)
    return made


def listed(w: World, *names: str) -> list[tuple[str, int, list[int], list[int]]]:
    topics = [Struct(name=name, partition_indexes=[0, 9]) for name in names]
    response = list_partition_reassignments(w.image, Struct(topics=topics or None))
    return [
        (topic.name, p.partition_index, list(p.adding_replicas), list(p.removing_replicas))
        for topic in response.topics
        for p in topic.partitions
    ]


class TestMove:
    def test_a_reassignment_from_begin_to_end(self) -> None:
        w = world()
        assert w.reassign([1, 4, 5]) == (ErrorCode.none, None)
        assert w.partition().replicas == (1, 4, 5, 2, 3)
        assert w.show() == "leader 1 epoch 0 isr 1,2,3 adding 4,5 removing 2,3"
        assert listed(w) == listed(w, "t", "no such topic") == [("t", 0, [4, 5], [2, 3])]
        assert w.alter_isr([1, 2, 3, 4]).error_code is ErrorCode.none
        assert w.show() == "leader 1 epoch 0 isr 1,2,3,4 adding 4,5 removing 2,3"
        answer = w.alter_isr([1, 2, 3, 4, 5])
        assert answer.error_code is ErrorCode.none
        assert answer.leader_epoch == 1, "those that were removed must notice"
        assert w.show() == "leader 1 epoch 1 isr 1,4,5"
        assert w.partition().replicas == (1, 4, 5)
        assert len(w.partition().directories) == 3
        assert listed(w) == []

    def test_the_leader_itself_moves_away(self) -> None:
        w = world()
        w.reassign([4, 5])
        answer = w.alter_isr([1, 2, 3, 4, 5])
        assert answer.error_code is ErrorCode.new_leader_elected
        assert w.show() == "leader 4 epoch 1 isr 4,5"

    def test_fewer_replicas_are_done_at_once(self) -> None:
        w = world()
        w.reassign([2, 1])
        assert w.show() == "leader 1 epoch 1 isr 1,2"
        assert w.partition().replicas == (2, 1)

    def test_another_order_is_done_at_once(self) -> None:
        w = world()
        w.reassign([3, 2, 1])
        assert w.show() == "leader 1 epoch 0 isr 1,2,3"
        assert w.partition().replicas == (3, 2, 1)

    def test_a_smaller_target_whose_replicas_are_not_in_sync(self) -> None:
        w = world()
        w.alter_isr([1, 2])
        w.reassign([3])
        assert w.show() == "leader 1 epoch 0 isr 1,2 removing 1,2"
        assert w.alter_isr([1, 2, 3]).error_code is ErrorCode.new_leader_elected
        assert w.show() == "leader 3 epoch 1 isr 3"

    def test_more_replicas(self) -> None:
        w = world()
        w.reassign([1, 2, 3, 4])
        assert w.show() == "leader 1 epoch 0 isr 1,2,3 adding 4"
        w.alter_isr([1, 2, 3, 4])
        assert w.show() == "leader 1 epoch 0 isr 1,2,3,4"

    def test_a_new_one_that_is_down_is_waited_for(self) -> None:
        w = world()
        w.fence(4)
        assert w.reassign([4, 2, 3])[0] is ErrorCode.none
        assert w.show() == "leader 1 epoch 0 isr 1,2,3 adding 4 removing 1"

    def test_nothing_to_do(self) -> None:
        w = world()
        offset = w.image.offset
        assert w.reassign([1, 2, 3]) == (ErrorCode.none, None)
        assert w.image.offset == offset

    def test_another_target_takes_the_place_of_the_first(self) -> None:
        w = world()
        w.reassign([1, 4, 5])
        w.alter_isr([1, 2, 3, 4])
        w.reassign([1, 2, 6])
        assert w.show() == "leader 1 epoch 1 isr 1,2,3 adding 6 removing 3"
        assert w.partition().replicas == (1, 2, 6, 3)
        w.reassign(None)
        assert sorted(w.partition().replicas) == [1, 2, 3]

    def test_a_target_that_keeps_some_of_the_first(self) -> None:
        w = world()
        w.reassign([1, 4, 5])
        w.alter_isr([1, 2, 3, 4])
        w.reassign([1, 4, 6])
        assert w.show() == "leader 1 epoch 1 isr 1,2,3,4 adding 4,6 removing 2,3"
        w.reassign(None)
        assert sorted(w.partition().replicas) == [1, 2, 3]
        assert w.show() == "leader 1 epoch 2 isr 1,2,3"

    def test_a_death_in_the_middle(self) -> None:
        w = world()
        w.reassign([4, 5])
        w.alter_isr([1, 2, 3, 4])
        w.fence(1, 2, 3)
        assert w.show() == "leader 4 epoch 1 isr 4 adding 4,5 removing 1,2,3"
        w.alter_isr([4, 5])
        assert w.show() == "leader 4 epoch 2 isr 4,5"


class TestCancel:
    def test_back_to_where_it_was(self) -> None:
        w = world()
        w.reassign([4, 5])
        w.alter_isr([1, 2, 3, 4])
        assert w.reassign(None) == (ErrorCode.none, None)
        assert w.show() == "leader 1 epoch 1 isr 1,2,3"
        assert sorted(w.partition().replicas) == [1, 2, 3]

    def test_nothing_to_cancel(self) -> None:
        assert world().reassign(None) == (ErrorCode.no_reassignment_in_progress, None)

    def test_a_cancel_is_refused_while_only_new_replicas_are_in_sync(self) -> None:
        w = world()
        w.reassign([4, 5])
        w.alter_isr([1, 2, 3, 4])
        w.fence(1, 2, 3)
        code, message = w.reassign(None)
        assert code is ErrorCode.invalid_replica_assignment
        assert message == (
            "Unable to revert partition assignment for t:0 because it would require an unclean "
            "leader election."
        )

    def test_a_cancel_with_unclean_election_while_only_new_replicas_are_in_sync(self) -> None:
        w = world({"unclean.leader.election.enable": "true"})
        w.reassign([4, 5])
        w.alter_isr([1, 2, 3, 4])
        w.fence(1, 2, 3)
        assert w.reassign(None)[0] is ErrorCode.none
        assert w.show() == "leader -1 epoch 2 isr 1"


class TestRefused:
    @pytest.mark.parametrize(
        ("replicas", "message"),
        [
            ([], "The manual partition assignment includes an empty replica list."),
            (
                [1, 9],
                "The manual partition assignment includes broker 9, but no such broker is "
                "registered.",
            ),
            ([2, 2], "The manual partition assignment includes the broker 2 more than once."),
        ],
    )
    def test_an_invalid_target_is_refused(self, replicas: list[int], message: str) -> None:
        w = world()
        offset = w.image.offset
        assert w.reassign(replicas) == (ErrorCode.invalid_replica_assignment, message)
        assert w.image.offset == offset

    def test_unknown_partitions_are_refused(self) -> None:
        w = world()
        code = ErrorCode.unknown_topic_or_partition
        assert w.reassign([1], "x") == (code, "Unable to find a topic named x.")
        assert w.reassign([1], "t", 4) == (code, "Unable to find partition t:4.")

    def test_another_factor_if_the_client_does_not_want_it(self) -> None:
        w = world()
        request = Struct(
            allow_replication_factor_change=False,
            topics=[
                Struct(
                    name="t",
                    partitions=[
                        Struct(partition_index=0, replicas=[1, 4]),
                        Struct(partition_index=0, replicas=[1, 4, 5]),
                    ],
                )
            ],
        )
        response = w.decide(w.active.alter_partition_reassignments(request))
        codes = [p.error_code for p in response.responses[0].partitions]
        assert codes == [ErrorCode.invalid_replication_factor, ErrorCode.invalid_request]
        assert response.allow_replication_factor_change is False


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.permutations([1, 2, 3, 4, 5, 6]).flatmap(
                lambda p: st.integers(1, 5).map(lambda n: p[:n])
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_sequence_of_targets_ends_at_the_last(targets: list[list[int] | None]) -> None:
    """Whatever is requested in between, once all replicas are in sync the assignment is the last
    target (after a cancel: the assignment before it), and the leader is one of its replicas."""
    w = world()
    settled = [1, 2, 3]
    under_way = settled
    for target in targets:
        code, _ = w.reassign(target)
        if target is not None:
            assert code is ErrorCode.none
            under_way = list(target)
        elif code is ErrorCode.none:
            under_way = settled
        partition = w.partition()
        if not (partition.adding_replicas or partition.removing_replicas):
            settled = under_way = list(partition.replicas)
    for _ in range(3):
        partition = w.partition()
        if partition.adding_replicas or partition.removing_replicas:
            w.alter_isr([partition.leader, *(set(partition.replicas) - {partition.leader})])
    partition = w.partition()
    assert set(partition.replicas) == set(under_way)
    assert partition.leader in under_way
    assert not partition.adding_replicas
    assert not partition.removing_replicas
