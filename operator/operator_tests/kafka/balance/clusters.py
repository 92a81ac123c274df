"""Clusters for the tests of the optimizer: drawn by hypothesis, and what holds for every plan."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from odradek_operator.kafka.balance.goals import HARD, LOADS, NAMES, TOPIC_SPREAD
from odradek_operator.kafka.balance.model import BrokerModel, Cluster, LoadedPartition, build
from odradek_operator.kafka.balance.search import Plan
from odradek_operator.kafka.balance.steps import ORDER
from odradek_protocol.ids import TopicPartition

ROUNDING = 1e-6


@st.composite
def clusters(draw: DrawFn, *, all_live: bool = False) -> Cluster:
    """Two to eight brokers in one to four racks, some of them down, excluded or small."""
    count = draw(st.integers(2, 8))
    racks = draw(st.integers(0, 4))
    brokers = [
        BrokerModel(
            id=broker + 100,
            rack=f"r{draw(st.integers(0, racks - 1))}" if racks else "",
            live=all_live or draw(st.integers(0, 9)) > 0,
            receives=draw(st.integers(0, 9)) > 0,
            disk_bytes_max=draw(st.sampled_from([float("inf"), 300.0, 1000.0])),
            replicas_max=draw(st.sampled_from([float("inf"), 12])),
        )
        for broker in range(count)
    ]
    partitions = []
    for number in range(draw(st.integers(1, 25))):
        ids = draw(st.permutations([b.id for b in brokers]))
        replicas = tuple(ids[: draw(st.integers(1, min(4, count)))])
        partitions.append(
            LoadedPartition(
                TopicPartition(f"t{draw(st.integers(0, 3))}", number),
                replicas,
                size_bytes=draw(st.integers(0, 100)),
                bytes_in=draw(st.integers(0, 100)),
                bytes_out=draw(st.integers(0, 100)),
                isr=frozenset(r for r in replicas if draw(st.integers(0, 9)) > 0),
                min_isr=draw(st.integers(1, 2)),
                fixed=draw(st.integers(0, 9)) == 0,
            )
        )
    return build(brokers, partitions)


def objective(scores: dict[str, float]) -> float:
    """The cost that the search reduces: scores of soft goals, an earlier one weighs ORDER times."""
    return sum(scores[name] * ORDER ** (len(NAMES) - at) for at, name in enumerate(NAMES))


def check(plan: Plan) -> None:
    """No hard goal is violated more than before, and no step violates one."""
    for goal in HARD:
        assert plan.after[goal.name] <= plan.before[goal.name], goal.name
    assert plan.after["exclusions"] == plan.after["distinct-brokers"] == plan.after["min-isr"] == 0
    assert {*plan.after} == {*(h.name for h in HARD), *(g.name for g in LOADS), TOPIC_SPREAD}
