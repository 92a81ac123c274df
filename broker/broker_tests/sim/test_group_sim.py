"""A consumer group in simulated clusters: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.sim.group_mutants import GROUP_MUTANTS, GROUP_SEEDS_MAX
from broker_tests.sim.group_run import run_group_seed
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import must_repeat, name_of, totals

SEEDS = 24
PART = 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_a_group_keeps_its_promises_under_faults(first: int) -> None:
    total = totals(run_group_seed, range(first, first + PART))
    assert total.acknowledged > 10 * PART
    assert total.reads > 10 * PART


def test_the_same_seed_is_the_same_run() -> None:
    must_repeat(run_group_seed, 3, 200)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "known"), GROUP_MUTANTS, ids=name_of)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_group_seed(seed).failure, known, GROUP_SEEDS_MAX)
