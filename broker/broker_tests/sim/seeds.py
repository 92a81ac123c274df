"""Simulating the seeds of a test: all of them pass, and the same seed is the same run.

total = totals(run_group_seed, range(0, 12))      fails with the first seed that fails
assert total.acknowledged > 100                   a simulation in which nothing happens
                                                  finds nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker_tests.sim.cluster_run import Outcome


def totals(run: Callable[[int], Outcome], seeds: Iterable[int]) -> Outcome:
    """The counters of all runs, added."""
    total = Outcome("total")
    for seed in seeds:
        outcome = run(seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        total.acknowledged += outcome.acknowledged
        total.elections += outcome.elections
        total.reads += outcome.reads
        total.faults += outcome.faults
    return total


def must_repeat(run: Callable[..., Outcome], seed: int, trace_lines: int) -> Outcome:
    first, second = run(seed, keep_trace=True), run(seed)
    assert len(first.trace) > trace_lines
    assert first.trace_hash == second.trace_hash
    return first


def name_of(parameter: Any) -> str:
    """The id of a parametrized test: the name of the planted bug."""
    return getattr(parameter, "name", "")
