"""ACLs in simulated clusters: all nodes agree after the heal, planted bugs are found."""

import pytest

from broker_tests.sim.acl_run import ACL_MUTANTS, ACL_SEEDS_MAX, run_acl_seed
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import name_of, totals

SEEDS = 12


@pytest.mark.timeout(300)
def test_nodes_decide_by_the_acls_they_have_and_agree_in_the_end() -> None:
    assert totals(run_acl_seed, range(SEEDS)).reads > 100 * SEEDS


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "known"), ACL_MUTANTS, ids=name_of)
def test_planted_bug_is_found(mutant: Mutant, known: int) -> None:
    mutant.must_be_found(lambda seed: run_acl_seed(seed).failure, known, ACL_SEEDS_MAX)
