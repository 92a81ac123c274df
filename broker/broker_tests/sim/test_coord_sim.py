"""Coordinators under simulation, on production logs: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.sim.coord_mutants import COORD_MUTANTS, COORD_SEEDS_MAX
from broker_tests.sim.coord_run import run_coord_seed
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import must_repeat, name_of, totals

SEEDS = 24
PART = 12


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_acknowledged_decisions_of_a_coordinator_stay(first: int) -> None:
    total = totals(run_coord_seed, range(first, first + PART))
    assert total.acknowledged > 50 * PART
    assert total.elections > PART


def test_the_same_seed_is_the_same_run() -> None:
    first = must_repeat(run_coord_seed, 7, 200)
    assert first.trace_hash != run_coord_seed(8).trace_hash


@pytest.mark.parametrize(("mutant", "known"), COORD_MUTANTS, ids=name_of)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_coord_seed(seed).failure, known, COORD_SEEDS_MAX)
