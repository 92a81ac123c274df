"""Long runs of the cluster simulation:  make sim SEEDS=1000 [START=0]

    python -m broker_tests.sim.cluster_main --seeds 1000 --start 0      (in the folder broker/)
    python -m broker_tests.sim.cluster_main --seed 348                  one, with its trace

    --kind coord | group | txn      with a coordinator, a consumer group, transactions
    --kind fenced                   with producers that are replaced by newer instances
    --kind disk                     with directories that fail and fill up, and starved peers

Prints what was found, and how many seeds per minute were run. A failure is run again (it must
fail in the same way) and shrunk to the fewest faults, which are written to build/sim as a scenario
(scenario_file.py); the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from broker_tests.sim import cluster_coverage, scenario_file
from broker_tests.sim.acl_run import ACL_MUTANTS, AclRun
from broker_tests.sim.cluster_mutants import CLUSTER_MUTANTS
from broker_tests.sim.cluster_run import ClusterRun
from broker_tests.sim.coord_mutants import COORD_MUTANTS
from broker_tests.sim.coord_run import CoordRun
from broker_tests.sim.disk_mutants import DISK_MUTANTS
from broker_tests.sim.disk_run import DiskRun
from broker_tests.sim.faults import Fault, shrink
from broker_tests.sim.group_mutants import GROUP_MUTANTS
from broker_tests.sim.group_run import GroupRun
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.txn_mutants import FENCED_MUTANT, TXN_MUTANTS
from broker_tests.sim.txn_run import FencedRun, TxnRun

PROGRESS_SECONDS = 30.0
SCENARIOS = Path("../build/sim")


KINDS: dict[str, tuple[type[ClusterRun], Sequence[Mutant]]] = {
    "cluster": (ClusterRun, CLUSTER_MUTANTS),
    "disk": (DiskRun, [mutant for mutant, _ in DISK_MUTANTS]),
    "acl": (AclRun, [mutant for mutant, _ in ACL_MUTANTS]),
    "coord": (CoordRun, [mutant for mutant, _ in COORD_MUTANTS]),
    "group": (GroupRun, [mutant for mutant, _ in GROUP_MUTANTS]),
    "txn": (TxnRun, [mutant for mutant, _ in TXN_MUTANTS]),
    "fenced": (FencedRun, [FENCED_MUTANT]),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate clusters under faults.")
    parser.add_argument("--kind", choices=KINDS, default="cluster")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this one only, with its trace")
    parser.add_argument("--mutant", help="with this planted bug (*_mutants.py)")
    parser.add_argument("--scenario", type=Path, help="a file that a failing seed has left")
    parser.add_argument("--coverage", action="store_true", help="which faults met which states")
    arguments = parser.parse_args()
    kind, planted = KINDS[arguments.kind]
    mutants = {mutant.name: mutant for mutant in planted}
    with mutants[arguments.mutant].planted() if arguments.mutant else nullcontext():
        if arguments.scenario is not None:
            name, seed, faults = scenario_file.load(arguments.scenario)
            return _show(KINDS[name][0], seed, faults)
        return _show(kind, arguments.seed) if arguments.seed is not None else _run(kind, arguments)


def _run(kind: type[ClusterRun], arguments: argparse.Namespace) -> int:
    began = told = time.monotonic()
    failed: list[int] = []
    acknowledged = elections = 0
    met: cluster_coverage.Met = Counter()
    for seed in range(arguments.start, arguments.start + arguments.seeds):
        outcome = kind(seed).run()
        acknowledged += outcome.acknowledged
        elections += outcome.elections
        met.update(outcome.met)
        if outcome.failure is not None:
            failed.append(seed)
            again = kind(seed).run()
            same = "" if again.trace_hash == outcome.trace_hash else " (NOT THE SAME AGAIN)"
            print(f"seed {seed}{same}: {outcome.failure}")
            needed = _shrink(kind, seed, outcome.faults)
            print("  needs:", "; ".join(map(str, needed)) or "no fault at all")
            path = SCENARIOS / f"{arguments.kind}-{seed}.json"
            scenario_file.save(path, arguments.kind, seed, outcome.failure, needed)
            print(f"  scenario: {path}, again with --scenario")
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            print(f"seed {seed}, {_per_minute(seed + 1 - arguments.start, began)}", flush=True)
    print(
        f"{arguments.seeds} seeds, {_per_minute(arguments.seeds, began)}: "
        f"{acknowledged} acknowledged, {elections} elections, {len(failed)} failed {failed}"
    )
    if arguments.coverage:
        print(cluster_coverage.table(met))
        print("never met:", cluster_coverage.never_met(met) or "none")
    return 1 if failed else 0


def _shrink(kind: type[ClusterRun], seed: int, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    return shrink(faults, lambda fewer: kind(seed, faults=fewer).run().failure is not None)


def _per_minute(seeds: int, began: float) -> str:
    return f"{60 * seeds / (time.monotonic() - began):.0f} seeds per minute"


def _show(kind: type[ClusterRun], seed: int, faults: tuple[Fault, ...] | None = None) -> int:
    """With its trace; a failing seed is shrunk first, a scenario is taken as it is."""
    outcome = kind(seed, faults=faults).run()
    if outcome.failure is not None and faults is None:
        faults = _shrink(kind, seed, outcome.faults)
    outcome = kind(seed, faults=faults, keep_trace=True).run()
    print("\n".join(outcome.trace))
    print("faults:", "; ".join(map(str, outcome.faults)))
    print(outcome.failure or "no violation", outcome.trace_hash)
    return 1 if outcome.failure is not None else 0


if __name__ == "__main__":
    sys.exit(main())
