"""Scenarios in the simulated cluster, each with many seeds: the result, and its latency."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from broker_tests.sim import scenario_file
from broker_tests.sim.cluster_main import KINDS
from broker_tests.sim.cluster_mutants import CLUSTER_MUTANTS, FOUND_BY
from broker_tests.sim.cluster_node import HEARTBEAT_MS
from broker_tests.sim.cluster_run import SETTINGS, ClusterRun
from broker_tests.sim.faults import Fault, Kind, shrink
from odradek_broker.controller.active import HEARTBEATS_OF_GRACE

SEEDS = range(12)
SESSION_MS = int(SETTINGS["broker.session.timeout.ms"])
GRACE_MS = HEARTBEATS_OF_GRACE * HEARTBEAT_MS


def _runs(fault: Fault, *, hits_controller: bool) -> Iterator[ClusterRun]:
    """Clusters in which only this happens, to a partition's leader or to the controller."""
    for seed in SEEDS:
        run = ClusterRun(seed, faults=(fault,), keep_trace=True)
        run.operator.acts = run.operator.restless = False

        def target(run: ClusterRun = run) -> int:
            controller = next(i for i, node in run.nodes.items() if node.is_leader)
            leaders = [p.leader for p in run._registrations() if p.leader != controller]
            return controller if hits_controller or not leaders else leaders[0]

        run.injector._leader = target
        outcome = run.run()
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        yield run


def _leaderless_ms(trace: list[str]) -> int | None:
    """How long after the crash the partitions of the dead broker were led by others."""
    dead, crashed_ms = "", 0
    led: set[Any] = set()
    for line in trace:
        at_ms, what, *rest = line.split()
        if what == "metadata" and rest[1] == "leader":
            name, leader = rest[0], rest[2].split("@")[0]
            if not dead:
                led = {n for n in led if n != (name, leader)} | {(name, leader)}
            elif (name, dead) in led and leader != dead:
                return int(at_ms) - crashed_ms
        elif what == "crash" and not dead:
            dead, crashed_ms = rest[0], int(at_ms)
    return None


def _times_ms(*, hits_controller: bool) -> list[int]:
    fault = Fault(Kind.CRASH, 1_000, 2_000, (1,), chases_leader=True)
    runs = _runs(fault, hits_controller=hits_controller)
    times = [_leaderless_ms(run.world.trace or []) for run in runs]
    return [time for time in times if time is not None]


def test_a_leader_that_dies_is_replaced_before_its_session_ends() -> None:
    """Its connection breaks: it has two heartbeats to come back."""
    times = _times_ms(hits_controller=False)
    assert len(times) >= len(SEEDS) // 2
    assert min(times) >= GRACE_MS
    assert median(times) < SESSION_MS - HEARTBEAT_MS


def test_the_partitions_of_a_controller_that_dies_do_not_wait_for_its_session() -> None:
    """The new controller knows the failed one: election, then the two heartbeats."""
    times = _times_ms(hits_controller=True)
    assert len(times) >= 3
    assert median(times) < 2 * SESSION_MS + GRACE_MS


def test_a_controller_that_slept_finds_out_when_it_decides() -> None:
    """1. SIGSTOP for longer than the quorum waits for its leader; 2. requests wait in its sockets;
    3. it resumes and decides on the first of them: the append is refused, the request is answered
    NOT_CONTROLLER, and it continues as a follower."""
    fault = Fault(Kind.PAUSE, 500, 3_000, (1,), chases_leader=True)
    refused = [run.cluster.appends_refused for run in _runs(fault, hits_controller=True)]
    assert sum(map(bool, refused)) >= 3


def test_a_failing_seed_becomes_a_scenario_file(tmp_path: Path) -> None:
    """Shrunk, written and read again it fails with the bug, and passes without it."""
    name = "unclean-election-although-disabled"
    mutant = next(mutant for mutant in CLUSTER_MUTANTS if mutant.name == name)
    path = tmp_path / "found.json"
    with mutant.planted():
        failed = ClusterRun(FOUND_BY[name]).run()
        assert failed.failure is not None
        needed = shrink(
            failed.faults,
            lambda fewer: ClusterRun(FOUND_BY[name], faults=fewer).run().failure is not None,
        )
        scenario_file.save(path, "cluster", FOUND_BY[name], failed.failure, needed)
        kind, seed, faults = scenario_file.load(path)
        assert faults == needed
        assert 0 < len(faults) <= len(failed.faults)
        assert KINDS[kind][0](seed, faults=faults).run().failure is not None
    assert KINDS[kind][0](seed, faults=faults).run().failure is None


def test_kept_scenarios_pass() -> None:
    """Each file in kept/ is a seed that once failed."""
    for path in sorted(scenario_file.KEPT.glob("*.json")):
        kind, seed, faults = scenario_file.load(path)
        assert KINDS[kind][0](seed, faults=faults).run().failure is None, path


def test_coverage_counts_the_states_that_faults_meet() -> None:
    met = ClusterRun(1).run().met
    assert sum(times for (_, state), times in met.items() if state == "") > 0
    assert any(state not in ("", "calm", "another fault") for _, state in met)
