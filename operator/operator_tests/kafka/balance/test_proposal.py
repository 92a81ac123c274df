"""The document that a plan becomes."""

from __future__ import annotations

import pytest

from odradek_operator.kafka.balance.document import from_json, to_json
from odradek_operator.kafka.balance.model import BrokerModel, LoadedPartition, build
from odradek_operator.kafka.balance.proposal import describe
from odradek_operator.kafka.balance.search import Options, optimize
from odradek_protocol.ids import TopicPartition

BROKERS = [BrokerModel(0, "a"), BrokerModel(1, "b"), BrokerModel(2, "c")]


def partition(number: int, *replicas: int, size: float = 100.0) -> LoadedPartition:
    return LoadedPartition(
        TopicPartition("orders", number), replicas, size, bytes_in=10, bytes_out=10
    )


def test_a_new_broker_gets_its_share_and_the_document_says_why() -> None:
    cluster = build(BROKERS, [partition(n, n % 2, 1 - n % 2) for n in range(12)])
    found = describe(cluster, optimize(cluster), mode="full", throttle=50.0)
    disk = next(g for g in found.goals if g.name == "disk")
    assert not disk.hard
    assert disk.before > 0.5
    assert disk.reached
    assert disk.deviation_after < 0.1 < disk.deviation_before
    assert (
        found.bytes
        == sum(m.bytes for m in found.moves)
        == 100 * sum(len(m.new) for m in found.moves)
    )
    assert found.seconds >= found.bytes / 50.0 / 2  # two brokers send at most
    assert all(m.new in ((), (2,)) for m in found.moves)
    assert any("replica" in m.why and "of its share, broker 2 0%" in m.why for m in found.moves)
    waiting = {f"{m.topic}-{m.partition}" for m in found.moves if m.after[0] == 2}
    assert {*found.without_preferred_leader} == waiting
    assert from_json(to_json(found)) == found


def test_a_balanced_cluster_proposes_nothing() -> None:
    cluster = build(BROKERS, [partition(n, n % 3, (n + 1) % 3) for n in range(12)])
    found = describe(cluster, optimize(cluster), mode="full", throttle=50.0)
    assert (found.moves, found.bytes, found.seconds, found.problems) == ([], 0, 0.0, [])
    assert all(goal.reached for goal in found.goals)


def test_without_traffic_no_broker_lacks_any() -> None:
    """A cluster at rest is not out of balance: KafkaRebalance's spec.imbalance looks at this."""
    idle = [LoadedPartition(TopicPartition("orders", n), (n % 3,), 100.0) for n in range(12)]
    found = describe(build(BROKERS, idle), optimize(build(BROKERS, idle)), mode="full", throttle=1)
    assert {goal.name: goal.before for goal in found.goals if goal.before} == {}


def test_a_large_partition_with_little_traffic_is_not_worth_its_bytes() -> None:
    """Two brokers; bytes-in is uneven, and only moving the huge partition would even it out."""
    brokers = [BrokerModel(0, "", disk_bytes_max=1e6), BrokerModel(1, "", disk_bytes_max=1e6)]
    idle = [
        LoadedPartition(TopicPartition("big", n), (n,), 10_000, bytes_in=8 + n * 3) for n in (0, 1)
    ]
    cluster = build(brokers, idle)
    goals = ("bytes-in",)
    assert optimize(cluster, Options(goals=goals)).steps == []
    swap = build(brokers, [*idle, LoadedPartition(TopicPartition("small", 0), (1,), 1, bytes_in=3)])
    assert [s.partition for s in optimize(swap, Options(goals=goals)).steps] == [2]


def test_a_broker_that_cannot_be_drained_is_a_problem_with_the_reason() -> None:
    cluster = build(BROKERS[:2], [partition(0, 0, 1)])
    plan = optimize(cluster, Options(mode="remove-brokers", brokers=(1,)))
    found = describe(cluster, plan, mode="remove-brokers", throttle=50.0)
    assert found.problems == [
        "orders-0 cannot leave broker 1: it has 2 replicas, and 1 brokers remain"
    ]


@pytest.mark.parametrize("text", ["{}", "[1]", "not json"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a proposal of `odradek rebalance propose`"):
        from_json(text)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="mode 'fast' is unknown; the modes are full"):
        Options(mode="fast")
    with pytest.raises(ValueError, match="goal 'cpu' is unknown; the goals are disk"):
        Options(goals=("cpu",))
    with pytest.raises(ValueError, match="mode remove-brokers needs the ids of brokers"):
        Options(mode="remove-brokers")
    cluster = build(BROKERS, [partition(0, 0, 1)])
    with pytest.raises(ValueError, match="the cluster has no broker 7"):
        optimize(cluster, Options(mode="add-brokers", brokers=(7,)))
