"""ACLs in simulated clusters: all nodes agree after the heal, planted bugs are found."""

import pytest

from broker_tests.sim.acl_run import ACL_MUTANTS, ACL_SEEDS_MAX, run_acl_seed
from broker_tests.sim.mutants import Mutant

SEEDS = 12


@pytest.mark.timeout(300)
def test_nodes_decide_by_the_acls_they_have_and_agree_in_the_end() -> None:
    checks = 0
    for seed in range(SEEDS):
        outcome = run_acl_seed(seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        checks += outcome.reads
    assert checks > 100 * SEEDS  # a simulation in which nothing happens finds nothing


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "known"), ACL_MUTANTS, ids=lambda one: getattr(one, "name", ""))
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_acl_seed(seed).failure, known, ACL_SEEDS_MAX)
