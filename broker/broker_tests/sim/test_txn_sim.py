"""Transactions in simulated clusters: clean seeds pass, planted bugs are found."""

import pytest

from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import must_repeat, name_of, totals
from broker_tests.sim.txn_mutants import FENCED_MUTANT, TXN_MUTANTS, TXN_SEEDS_MAX
from broker_tests.sim.txn_run import FencedRun, TxnRun, run_fenced_seed, run_txn_seed

SEEDS = 18
PART = 9
FENCED_SEEDS = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_transactions_are_atomic(first: int) -> None:
    total = totals(run_txn_seed, range(first, first + PART))
    assert total.acknowledged > 4 * PART
    assert total.reads > 6 * PART


def test_without_faults_producers_commit_again_and_again() -> None:
    run = TxnRun(6, faults=())
    run.operator.acts = run.operator.restless = False
    outcome = run.run()
    assert outcome.failure is None
    assert outcome.acknowledged > 15


def test_the_same_seed_is_the_same_run() -> None:
    must_repeat(run_txn_seed, 3, 200)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "known"), TXN_MUTANTS, ids=name_of)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_txn_seed(seed).failure, known, TXN_SEEDS_MAX)


@pytest.mark.timeout(300)
def test_a_replaced_instance_writes_nothing_more() -> None:
    refusals = 0
    for seed in range(FENCED_SEEDS):
        run = FencedRun(seed)
        outcome = run.run()
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        refusals += run.refusals
    assert refusals > 10 * FENCED_SEEDS


@pytest.mark.timeout(300)
def test_an_ignored_producer_epoch_is_found() -> None:
    FENCED_MUTANT.must_be_found(lambda seed: run_fenced_seed(seed).failure, 0, FENCED_SEEDS)
