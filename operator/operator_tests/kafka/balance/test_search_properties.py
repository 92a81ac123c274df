"""Properties of the search for every cluster: no hard goal is violated, scores fall, a balanced
cluster is left alone, and the same input gives the same proposal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek_operator.kafka.balance.model import Cluster
from odradek_operator.kafka.balance.search import HOT, Options, optimize
from odradek_operator.kafka.balance.steps import StepKind
from operator_tests.kafka.balance.clusters import ROUNDING, check, clusters, objective

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXAMPLES
@given(clusters(), st.integers(0, 3))
def test_full_keeps_hard_goals_and_improves(cluster: Cluster, seed: int) -> None:
    plan = optimize(cluster, Options(seed=seed))
    check(plan)
    if not any(
        step.goal in ("rack-aware", "disk-capacity", "replica-capacity") for step in plan.steps
    ):
        assert objective(plan.after) <= objective(plan.before) + ROUNDING


@EXAMPLES
@given(clusters())
def test_a_proposal_carried_out_proposes_nothing(cluster: Cluster) -> None:
    """All replicas are in sync before: one that lags cannot lead, and can after its move."""
    cluster = replace(cluster, lagging=np.zeros_like(cluster.lagging))
    plan = optimize(cluster)
    assert plan.converged
    assert optimize(cluster.moved_to(plan.replicas)).steps == []


@EXAMPLES
@given(clusters(), st.integers(0, 3))
def test_the_same_seed_gives_the_same_plan(cluster: Cluster, seed: int) -> None:
    one, other = optimize(cluster, Options(seed=seed)), optimize(cluster, Options(seed=seed))
    assert one.steps == other.steps
    assert np.array_equal(one.replicas, other.replicas)


@EXAMPLES
@given(clusters())
def test_steps_lead_from_the_old_to_the_new_assignment(cluster: Cluster) -> None:
    plan = optimize(cluster)
    replicas = cluster.replicas.copy()
    for step in plan.steps:
        row = replicas[step.partition]
        if step.kind is StepKind.LEADER:
            row[0], row[step.place] = row[step.place], row[0]
        else:
            assert row[step.place] == step.src
            row[step.place] = step.to
    assert np.array_equal(replicas, plan.replicas)


@EXAMPLES
@given(clusters())
def test_leaders_only_moves_no_replica(cluster: Cluster) -> None:
    plan = optimize(cluster, Options(mode="leaders-only"))
    check(plan)
    assert np.array_equal(np.sort(plan.replicas, axis=1), np.sort(cluster.replicas, axis=1))
    changed = plan.replicas[:, 0] != cluster.replicas[:, 0]
    for row in np.nonzero(changed)[0]:
        now = np.nonzero(cluster.replicas[row] == plan.replicas[row, 0])[0][0]
        assert not cluster.lagging[row, now]  # only a replica in sync can lead


@EXAMPLES
@given(clusters(all_live=True), st.data())
def test_remove_brokers_empties_them_or_says_why(cluster: Cluster, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from([int(b) for b in cluster.broker_ids]))
    plan = optimize(cluster, Options(mode="remove-brokers", brokers=(broker,)))
    number = cluster.numbers([broker])[0]
    left = int((plan.replicas == number).sum())
    assert left == len([p for p in plan.problems if p.goal == "drain"])
    changed = (plan.replicas != cluster.replicas).any(axis=1)
    assert (cluster.replicas[changed] == number).any(axis=1).all()  # nothing else moves
    assert plan.after["distinct-brokers"] == plan.after["exclusions"] == 0


@EXAMPLES
@given(clusters(all_live=True), st.data())
def test_add_brokers_moves_only_to_them(cluster: Cluster, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from([int(b) for b in cluster.broker_ids]))
    number = cluster.numbers([broker])[0]
    plan = optimize(cluster, Options(mode="add-brokers", brokers=(broker,)))
    check(plan)
    repaired = {s.partition for s in plan.steps if s.goal.endswith(("capacity", "aware"))}
    for step in plan.steps:
        if step.partition not in repaired:
            assert step.to == number


@EXAMPLES
@given(clusters())
def test_hot_disk_only_cools(cluster: Cluster) -> None:
    plan = optimize(cluster, Options(mode="hot-disk"))
    check(plan)
    room = cluster.disk_bytes_max
    used = np.bincount(
        cluster.replicas[cluster.replicas >= 0],
        np.broadcast_to(cluster.size_bytes[:, None], cluster.replicas.shape)[cluster.replicas >= 0],
        cluster.brokers,
    )
    for step in plan.steps:
        assert used[step.src] > HOT * room[step.src]
        used[step.src] -= cluster.size_bytes[step.partition]
        used[step.to] += cluster.size_bytes[step.partition]
        assert used[step.to] <= HOT * room[step.to]
