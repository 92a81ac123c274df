"""Coordinators under simulation, on production logs: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.sim.coord_mutants import COORD_MUTANTS, COORD_SEEDS_MAX
from broker_tests.sim.coord_run import run_coord_seed
from broker_tests.sim.mutants import Mutant

SEEDS = 24
PART = 12


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_acknowledged_decisions_of_a_coordinator_stay(first: int) -> None:
    answers = elections = 0
    for seed in range(first, first + PART):
        outcome = run_coord_seed(seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        answers += outcome.acknowledged
        elections += outcome.elections
    # A simulation in which nothing happens finds nothing.
    assert answers > 50 * PART
    assert elections > PART


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run_coord_seed(7, keep_trace=True), run_coord_seed(7)
    assert len(first.trace) > 200
    assert first.trace_hash == second.trace_hash
    assert first.trace_hash != run_coord_seed(8).trace_hash


@pytest.mark.parametrize(
    ("mutant", "known"), COORD_MUTANTS, ids=lambda one: getattr(one, "name", "")
)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_coord_seed(seed).failure, known, COORD_SEEDS_MAX)
