"""The cluster under simulation: clean seeds pass, the same seed is the same run, planted bugs
are found."""

import pytest

from broker_tests.sim.cluster_mutants import CLUSTER_MUTANTS, FOUND_BY, SEEDS_MAX
from broker_tests.sim.cluster_run import run_seed
from broker_tests.sim.mutants import Mutant

SEEDS = 300
PART = 50


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_nothing_is_lost_and_the_cluster_heals(first: int) -> None:
    acknowledged = elections = reads = 0
    for seed in range(first, first + PART):
        outcome = run_seed(seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        acknowledged += outcome.acknowledged
        elections += outcome.elections
        reads += outcome.reads
    # A simulation in which nothing happens finds nothing.
    assert acknowledged > 40 * PART
    assert elections > PART
    assert reads > 100 * PART


@pytest.mark.parametrize("seed", [1, 8, 20])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first, second = run_seed(seed, keep_trace=True), run_seed(seed)
    assert len(first.trace) > 500
    assert first.trace_hash == second.trace_hash
    assert first.trace_hash != run_seed(seed + 1).trace_hash


@pytest.mark.parametrize("mutant", CLUSTER_MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    known = FOUND_BY.get(mutant.name, 0)
    mutant.must_be_found(lambda seed: run_seed(seed).failure, known, SEEDS_MAX)
