"""A share group in simulated clusters: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import must_repeat, name_of, totals
from broker_tests.sim.share_mutants import SHARE_MUTANTS, SHARE_SEEDS_MAX
from broker_tests.sim.share_run import run_share_seed

SEEDS = 24
PART = 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_a_share_group_keeps_its_promises_under_faults(first: int) -> None:
    total = totals(run_share_seed, range(first, first + PART))
    assert total.acknowledged > 50 * PART
    assert total.reads > 100 * PART


def test_the_same_seed_is_the_same_run() -> None:
    must_repeat(run_share_seed, 3, 200)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "known"), SHARE_MUTANTS, ids=name_of)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_share_seed(seed).failure, known, SHARE_SEEDS_MAX)
