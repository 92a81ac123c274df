"""Failing and full directories and starved peers, simulated: clean seeds pass, planted bugs (A1
and A4 of issue 17 among them) are found."""

import pytest

from broker_tests.sim.disk_mutants import DISK_MUTANTS, DISK_SEEDS_MAX
from broker_tests.sim.disk_run import DiskRun, run_disk_seed
from broker_tests.sim.faults import Fault, Kind
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import must_repeat, name_of, totals

SEEDS = 24
PART = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_nobody_waits_for_a_broker_that_cannot_write(first: int) -> None:
    total = totals(run_disk_seed, range(first, first + PART))
    assert total.acknowledged > 150 * PART
    assert len(total.faults) > 2 * PART


def test_the_same_seed_is_the_same_run() -> None:
    must_repeat(run_disk_seed, 2, 500)


@pytest.mark.parametrize(("kind", "dirs"), [(Kind.DIR_FAILS, 1), (Kind.DIR_FULL, 1)])
def test_a_broker_without_a_directory_is_fenced_and_comes_back(kind: Kind, dirs: int) -> None:
    """The leader's only directory fails, or fills up: others lead, and it is back at the end."""
    for seed in range(100):
        run = DiskRun(f"one-{seed}", faults=(Fault(kind, 500, 2_000, (1,), chases_leader=True),))
        if run.calm and all(len(node.directories) == dirs for node in run.nodes.values()):
            break
    outcome = run.run()
    assert outcome.failure is None
    assert outcome.elections > 0
    assert 0 < run.records_per_fault < 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "known"), DISK_MUTANTS, ids=name_of)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_disk_seed(seed).failure, known, DISK_SEEDS_MAX)
