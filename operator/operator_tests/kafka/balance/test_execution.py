"""Which moves of a proposal are next, and which are not made."""

from __future__ import annotations

from odradek_operator.kafka.balance.document import Move
from odradek_operator.kafka.balance.execution import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    MOVES_MAX,
    PER_BROKER_MAX,
    ExecutionProgress,
    Stage,
    hold_reason,
    next_moves,
    place,
    progress,
    reversed_moves,
    stage,
    throttled_brokers,
    throttled_topics,
)
from odradek_operator.kafka.observed import Partition
from odradek_protocol.ids import TopicPartition


def move(number: int, before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    return Move("t", number, before, after, 100, 1.0, "")


def seen(
    number: int, leader: int, replicas: tuple[int, ...], adding: frozenset[int] = frozenset()
) -> Partition:
    removing = frozenset({1}) if adding else frozenset()
    isr = frozenset(replicas) - adding
    return Partition(TopicPartition("t", number), leader, replicas, isr, 1, adding, removing)


def test_each_stage_follows_from_what_is_observed() -> None:
    wanted = move(0, (0, 1), (2, 0))
    assert stage(wanted, seen(0, 0, (0, 1))) is Stage.PENDING
    assert stage(wanted, seen(0, 0, (2, 0, 1), frozenset({2}))) is Stage.MOVING
    assert stage(wanted, seen(0, 0, (2, 0))) is Stage.ELECTING
    assert stage(wanted, seen(0, 2, (2, 0))) is Stage.DONE
    assert stage(wanted, seen(0, 1, (1, 0))) is Stage.PENDING  # cancelled: Kafka mixes the order
    assert stage(wanted, seen(0, 3, (3, 0))) is Stage.CHANGED
    assert stage(wanted, None) is Stage.CHANGED


def test_batches_are_limited_per_broker_and_in_total() -> None:
    to_one = [move(n, (0, 1), (0, 2)) for n in range(50)]
    now = ExecutionProgress({place(m): Stage.PENDING for m in to_one}, 0, 0.0)
    assert next_moves(to_one, now, 50e6) == to_one[:PER_BROKER_MAX]
    moving = {place(m): Stage.MOVING for m in to_one[:4]}
    now = ExecutionProgress({**now.stages, **moving}, 0, 0.0)
    assert next_moves(to_one, now, 50e6) == to_one[4:PER_BROKER_MAX]
    order = [move(n, (0, 1), (1, 0)) for n in range(150)]  # leaders only: no broker copies
    now = ExecutionProgress({place(m): Stage.PENDING for m in order}, 0, 0.0)
    assert next_moves(order, now, 50e6) == order[:MOVES_MAX]


def test_nothing_begins_while_a_partition_or_a_broker_is_in_need() -> None:
    whole = Partition(TopicPartition("t", 0), 0, (0, 1), frozenset({0, 1}), min_isr=2)
    thin = Partition(TopicPartition("t", 1), 0, (0, 1), frozenset({0}), min_isr=2)
    impossible = Partition(TopicPartition("t", 2), 0, (0,), frozenset({0}), min_isr=2)
    live = frozenset({0, 1})
    assert hold_reason([whole, impossible], live, [0, 1]) == ""
    assert "t-1 has fewer replicas in sync" in hold_reason([whole, thin], live, [0, 1])
    assert hold_reason([whole], live, [0, 1, 2]) == "broker 2 is not live"
    held = progress([move(0, (0, 1), (0, 2))], {whole.id: whole}, 10.0, "broker 2 is not live")
    assert next_moves([move(0, (0, 1), (0, 2))], held, 50e6) == []
    assert (held.bytes_left, held.seconds_left, held.finished) == (100, 10.0, False)


def test_old_replicas_send_and_new_ones_receive_throttled() -> None:
    moves = [move(0, (0, 1), (0, 2)), move(1, (0, 1), (1, 0)), move(2, (3, 1), (3, 0))]
    assert throttled_topics(moves) == {
        "t": {LEADER_REPLICAS: "0:0,0:1,2:3,2:1", FOLLOWER_REPLICAS: "0:2,2:0"}
    }
    assert throttled_brokers(moves) == [0, 1, 2, 3]


def test_the_way_back_is_the_reverse() -> None:
    (back,) = reversed_moves([move(0, (0, 1), (2, 0))])
    assert (back.before, back.after) == ((2, 0), (0, 1))
