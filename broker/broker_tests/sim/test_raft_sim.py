"""The metadata quorum under simulated faults: 300 seeds, and every planted bug is found.

A failing seed again, with its trace: python -m broker_tests.sim --seeds 1 --start SEED --trace
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest

from broker_tests.sim.__main__ import find
from broker_tests.sim.mutants import FOUND_BY, MUTANTS, SEEDS_TO_FIND_MAX, Mutant
from broker_tests.sim.raft_run import RaftRun, run_seed, shrink_seed
from odradek_broker.raft import transitions
from odradek_broker.raft.states import TRANSITIONS, Cause, Role, next_role

SEEDS = 300
BROKER_FOLDER = Path(__file__).parents[2]


@dataclass
class Survey:
    """The sums over all seeds."""

    failures: dict[int, str] = field(default_factory=dict)
    idle: list[int] = field(default_factory=list)
    role_changes: set[tuple[Role, Cause]] = field(default_factory=set)
    instructions: Counter[str] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def survey() -> Survey:
    survey = Survey()

    def noted(role: Role, cause: Cause, *, may_stand: bool) -> Role:
        survey.role_changes.add((role, cause))
        return next_role(role, cause, may_stand=may_stand)

    with patch.object(transitions, "next_role", noted):
        for seed in range(SEEDS):
            outcome = run_seed(seed)
            survey.instructions.update(outcome.seen)
            if outcome.failure is not None:
                survey.failures[seed] = outcome.failure
            if outcome.committed < 10:
                survey.idle.append(seed)
    return survey


def test_a_quorum_keeps_its_promises_in_the_first_seeds() -> None:
    assert [run_seed(seed).failure for seed in range(SEEDS // 10)] == [None] * (SEEDS // 10)


@pytest.mark.long  # the survey of all seeds takes half a minute of processor time
@pytest.mark.timeout(600)
def test_a_quorum_keeps_its_promises_under_faults(survey: Survey) -> None:
    assert not survey.failures
    assert not survey.idle, "these seeds wrote next to nothing"


@pytest.mark.long  # the same survey
@pytest.mark.timeout(600)
def test_the_seeds_reach_every_role_change_and_every_instruction(survey: Survey) -> None:
    """A role change that no seed reaches is not tested."""
    assert survey.role_changes == set(TRANSITIONS)
    for name in ("TruncateLog", "LoadSnapshot", "TrimLog", "VotersChanged", "AppendRefused"):
        assert survey.instructions[name], f"no {name}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    known = FOUND_BY.get(mutant.name, 0)
    mutant.must_be_found(lambda seed: run_seed(seed).failure, known, SEEDS_TO_FIND_MAX)


def test_planted_bugs_are_gone_afterwards() -> None:
    """1. plant and remove each bug; 2. a run is what it was before."""
    before = run_seed(0).trace_hash
    for mutant in MUTANTS:
        with mutant.planted():
            pass
    assert run_seed(0).trace_hash == before


def test_same_seed_same_trace() -> None:
    first, second = run_seed(11, keep_trace=True), run_seed(11, keep_trace=True)
    assert first.trace == second.trace
    assert first.trace_hash == second.trace_hash
    assert run_seed(12).trace_hash != first.trace_hash


def test_trace_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from broker_tests.sim.raft_run import run_seed\n"
        "print([run_seed(seed).trace_hash for seed in range(3, 6)])"
    )
    printed = set()
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=BROKER_FOLDER,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.add(done.stdout)
    assert len(printed) == 1


def test_a_failing_schedule_is_shrunk() -> None:
    """1. find a seed that fails by its faults; 2. shrink; 3. the rest still fails, minimally."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "no-check-quorum")
    found = find(mutant, range(SEEDS_TO_FIND_MAX))
    assert found is not None
    with mutant.planted():
        fewer = shrink_seed(found)
        assert 0 < len(fewer) < len(found.faults)
        assert RaftRun(found.seed, faults=fewer).run().failure is not None
        for index in range(len(fewer)):
            without = fewer[:index] + fewer[index + 1 :]
            assert RaftRun(found.seed, faults=without).run().failure is None
