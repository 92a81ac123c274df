"""A consumer group in simulated clusters: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.sim.group_mutants import GROUP_MUTANTS, GROUP_SEEDS_MAX
from broker_tests.sim.group_run import run_group_seed
from broker_tests.sim.mutants import Mutant

SEEDS = 24
PART = 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_a_group_keeps_its_promises_under_faults(first: int) -> None:
    commits = fetches = 0
    for seed in range(first, first + PART):
        outcome = run_group_seed(seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        commits += outcome.acknowledged
        fetches += outcome.reads
    # A simulation in which nothing happens finds nothing.
    assert commits > 10 * PART
    assert fetches > 10 * PART


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run_group_seed(3, keep_trace=True), run_group_seed(3)
    assert len(first.trace) > 200
    assert first.trace_hash == second.trace_hash


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mutant", "known"), GROUP_MUTANTS, ids=lambda one: getattr(one, "name", "")
)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_group_seed(seed).failure, known, GROUP_SEEDS_MAX)
