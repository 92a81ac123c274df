"""What makes the search fast in large clusters changes nothing about its answers."""

from __future__ import annotations

import numpy as np
import pytest

from odradek_operator.kafka.balance.goals import HARD, LOADS, NAMES
from odradek_operator.kafka.balance.search import Options, optimize
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import HOPEFUL_MAX, Chooser
from odradek_testkit.skewed_clusters import skewed
from operator_tests.kafka.balance.clusters import check


@pytest.mark.parametrize(
    ("brokers", "replicas", "goals"),
    [(40, 2_400, NAMES), (HOPEFUL_MAX + 20, 2_200, ("disk", "leaders"))],
)
def test_a_large_cluster(brokers: int, replicas: int, goals: tuple[str, ...]) -> None:
    """No rule is broken, the wanted scores fall, and the next proposal is empty."""
    cluster, options = skewed(brokers, replicas, seed=3, racks=4), Options(goals=goals, seed=2)
    plan = optimize(cluster, options)
    check(plan)
    assert plan.converged
    assert all(plan.after[name] < plan.before[name] / 2 for name in ("disk", "leaders"))
    again = optimize(cluster.moved_to(plan.replicas), options)
    assert again.steps == []


def test_the_replicas_of_a_broker_are_known_after_any_step() -> None:
    cluster = skewed(9, 240, seed=1)
    state = State(cluster, LOADS)
    rng = np.random.default_rng(1)
    for _ in range(300):
        partition = int(rng.integers(cluster.partitions))
        if rng.integers(2):
            state.lead(partition, int(rng.integers(1, 3)))
        else:
            free = np.setdiff1d(np.arange(9), state.replicas[partition])
            state.move(partition, int(rng.integers(3)), int(rng.choice(free)))
    for broker in range(9):
        rows, places = state.on(broker)
        assert np.array_equal(np.stack([rows, places]), np.nonzero(state.replicas == broker))


def test_candidates_without_hope_would_fail() -> None:
    """Of all replicas and leaders of each broker, for each goal: judged in a block, and alone."""
    cluster = skewed(12, 600, seed=5)
    state = State(cluster, LOADS)
    choose = Chooser(state, HARD, range(len(LOADS)), 0.1, state.open)
    to, tried, hopeless = np.arange(cluster.brokers), 0, 0
    for goal in range(len(LOADS)):
        for src in range(cluster.brokers):
            rows, places = state.on(src)
            hope = choose.hopeful_replicas(goal, src, rows, places, to)
            for row, place in zip(rows[~hope].tolist(), places[~hope].tolist(), strict=True):
                assert choose.replica(goal, row, place, to) is None
            led = rows[places == 0]
            leads = choose.hopeful_leaders(goal, led, state.open)
            for row in led[~leads].tolist():
                assert choose.leader(goal, row, state.open) is None
            tried += len(rows) + len(led)
            hopeless += int((~hope).sum() + (~leads).sum())
    assert 0 < hopeless < tried
