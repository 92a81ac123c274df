"""Long runs, from the folder broker/:

python -m broker_tests.sim --seeds 10000 --start 0 --jobs 2    many seeds
python -m broker_tests.sim --seeds 1 --start 4711 --trace      one seed, with its trace
python -m broker_tests.sim --mutants --seeds 500               how soon planted bugs are found
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from broker_tests.sim.mutants import MUTANTS, Mutant
from broker_tests.sim.raft_run import Outcome, run_seed, shrink_seed

REPORT_EVERY_S = 10.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m broker_tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    parser.add_argument("--shrink", action="store_true", help="find the faults that matter")
    parser.add_argument("--mutants", action="store_true", help="plant bugs instead")
    options = parser.parse_args(arguments)
    seeds = range(options.start, options.start + options.seeds)
    if options.mutants:
        return _hunt_mutants(seeds)
    failed = []
    seen: Counter[str] = Counter()
    began = reported = time.monotonic()
    for done, outcome in enumerate(_outcomes(seeds, options.jobs, options.trace), start=1):
        seen.update(outcome.seen)
        if options.trace:
            print("\n".join(outcome.trace))
        if outcome.failure is not None:
            failed.append(outcome.seed)
            _print_failure(outcome, shrink=options.shrink)
        now = time.monotonic()
        if now - reported > REPORT_EVERY_S or done == len(seeds):
            reported = now
            per_minute = done * 60 / (now - began)
            print(f"{done} seeds, {len(failed)} failed, {per_minute:.0f} seeds per minute")
    print("instructions:", ", ".join(f"{name} {n}" for name, n in sorted(seen.items())))
    if failed:
        print("failing seeds:", " ".join(map(str, failed)))
    return 1 if failed else 0


def _outcomes(seeds: range, jobs: int, trace: bool) -> Iterator[Outcome]:
    if jobs == 1:
        for seed in seeds:
            yield run_seed(seed, keep_trace=trace)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(run_seed, seeds, chunksize=10)


def _print_failure(outcome: Outcome, *, shrink: bool) -> None:
    print(f"seed {outcome.seed}: {outcome.failure}")
    print(f"  again: python -m broker_tests.sim --seeds 1 --start {outcome.seed} --trace")
    if shrink:
        for fault in shrink_seed(outcome):
            print(f"  fault {fault}")


def _hunt_mutants(seeds: range) -> int:
    survived = 0
    for mutant in MUTANTS:
        found = find(mutant, seeds)
        if found is None:
            survived += 1
            print(f"{mutant.name:34} NOT FOUND in {len(seeds)} seeds")
        else:
            failure = (found.failure or "").strip().splitlines()[-1]
            print(f"{mutant.name:34} seed {found.seed}: {failure[:100]}")
    return 1 if survived else 0


def find(mutant: Mutant, seeds: range) -> Outcome | None:
    """The first run in which the planted bug is found."""
    with mutant.planted():
        for seed in seeds:
            outcome = run_seed(seed)
            if outcome.failure is not None:
                return outcome
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
