"""The cluster under simulation: clean seeds pass, the same seed is the same run, planted bugs
are found."""

from dataclasses import replace
from itertools import chain

import pytest

from broker_tests.sim.cluster_mutants import CLUSTER_MUTANTS, FOUND_BY, SEEDS_MAX
from broker_tests.sim.cluster_run import run_seed
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.seeds import must_repeat, totals
from odradek_broker.controller import delegation_tokens
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.scram import ScramImage

SEEDS = 300
PART = 50
SEARCHED = 100


def seed_with(request: str, times: int, *, known: int) -> int:
    """A seed that sends the request so often. The search begins at one that does, or did once."""
    for seed in chain([known], range(SEARCHED)):
        trace = run_seed(seed, keep_trace=True).trace
        if sum(request in line for line in trace) >= times:
            return seed
    raise AssertionError(f"none of {SEARCHED} seeds sends {request} {times} times")


# The first seeds are quick; all of them take half a minute of processor time.
@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(PART, SEEDS, PART))],
)
def test_nothing_is_lost_and_the_cluster_heals(first: int) -> None:
    total = totals(run_seed, range(first, first + PART))
    assert total.acknowledged > 40 * PART
    assert total.elections > PART
    assert total.reads > 100 * PART


@pytest.mark.parametrize("seed", [1, 8, 20])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first = must_repeat(run_seed, seed, 500)
    assert first.trace_hash != run_seed(seed + 1).trace_hash


def test_users_and_quotas_change_and_a_broker_that_misses_a_change_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: broker 2 keeps the first password of each user."""
    seed = seed_with("alter_user_scram", 5, known=10)
    assert run_seed(seed).failure is None
    publish = MetadataPublisher.publish

    def stale(self: MetadataPublisher, delta: MetadataDelta, epoch: int) -> None:
        if self._node_id == 2:
            old = self.image.scram.credentials
            new = delta.after.scram.credentials
            kept = ScramImage({key: old.get(key, new[key]) for key in new})
            delta.after = replace(delta.after, scram=kept)
        publish(self, delta, epoch)

    monkeypatch.setattr(MetadataPublisher, "publish", stale)
    assert "SCRAM credentials differ" in str(run_seed(seed).failure)


def test_tokens_change_and_bugs_about_them_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two planted bugs: broker 2 keeps a token that was removed; expired tokens stay."""

    seed = seed_with("delegation_token", 9, known=45)
    assert run_seed(seed).failure is None
    publish = MetadataPublisher.publish

    def stale(self: MetadataPublisher, delta: MetadataDelta, epoch: int) -> None:
        if self._node_id == 2:
            delta.after = replace(delta.after, tokens={**self.image.tokens, **delta.after.tokens})
        publish(self, delta, epoch)

    with monkeypatch.context() as planted:
        planted.setattr(MetadataPublisher, "publish", stale)
        assert "delegation tokens differ" in str(run_seed(seed).failure)
    monkeypatch.setattr(delegation_tokens, "remove_expired", lambda *_: [])
    assert "is not removed" in str(run_seed(seed).failure)


@pytest.mark.parametrize("mutant", CLUSTER_MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    known = FOUND_BY.get(mutant.name, 0)
    mutant.must_be_found(lambda seed: run_seed(seed).failure, known, SEEDS_MAX)
