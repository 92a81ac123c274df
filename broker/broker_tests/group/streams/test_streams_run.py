"""A streams group under faults: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.group.streams.mutants import MUTANTS, SEEDS_MAX
from broker_tests.group.streams.run import StreamsRun, failure_of
from broker_tests.sim.mutants import Mutant

SEEDS = 30


def test_tasks_have_one_owner_and_are_all_processed() -> None:
    handovers = 0
    for seed in range(SEEDS):
        run = StreamsRun(seed)
        failure = run.run()
        assert failure is None, f"seed {seed}: {failure}"
        handovers += run.handovers
    assert handovers > SEEDS  # a run in which nothing moves finds nothing


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    mutant.must_be_found(failure_of, 0, SEEDS_MAX)
