"""The cluster under simulation: clean seeds pass, the same seed is the same run, planted bugs
are found."""

from dataclasses import replace

import pytest

from broker_tests.sim.cluster_mutants import CLUSTER_MUTANTS, FOUND_BY, SEEDS_MAX
from broker_tests.sim.cluster_run import run_seed
from broker_tests.sim.mutants import Mutant
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.publisher import MetadataPublisher

SEEDS = 300
PART = 50


# The first seeds are quick; all of them take half a minute of processor time.
@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(PART, SEEDS, PART))],
)
def test_nothing_is_lost_and_the_cluster_heals(first: int) -> None:
    acknowledged = elections = reads = 0
    for seed in range(first, first + PART):
        outcome = run_seed(seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        acknowledged += outcome.acknowledged
        elections += outcome.elections
        reads += outcome.reads
    # A simulation in which nothing happens finds nothing.
    assert acknowledged > 40 * PART
    assert elections > PART
    assert reads > 100 * PART


@pytest.mark.parametrize("seed", [1, 8, 20])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first, second = run_seed(seed, keep_trace=True), run_seed(seed)
    assert len(first.trace) > 500
    assert first.trace_hash == second.trace_hash
    assert first.trace_hash != run_seed(seed + 1).trace_hash


def test_users_and_quotas_change_and_a_broker_that_misses_a_change_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: broker 2 keeps the credentials that it has."""
    seed = next(
        seed
        for seed in range(50)
        if sum("alter_user_scram" in line for line in run_seed(seed, keep_trace=True).trace) > 4
    )
    assert run_seed(seed).failure is None
    publish = MetadataPublisher.publish

    def stale(self: MetadataPublisher, delta: MetadataDelta, epoch: int) -> None:
        if self._node_id == 2 and self.image.scram.credentials:
            delta.after = replace(delta.after, scram=self.image.scram)
        publish(self, delta, epoch)

    monkeypatch.setattr(MetadataPublisher, "publish", stale)
    assert "SCRAM credentials differ" in str(run_seed(seed).failure)


@pytest.mark.parametrize("mutant", CLUSTER_MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    known = FOUND_BY.get(mutant.name, 0)
    mutant.must_be_found(lambda seed: run_seed(seed).failure, known, SEEDS_MAX)
