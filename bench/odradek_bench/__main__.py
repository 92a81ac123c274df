"""`make bench`, `make bench CASE=name,name`, `make bench-smoke`; also `--list`.

A run of all cases in full writes docs/benchmarks.md with its plots and bench/results/results.json.
A run of some cases writes build/bench/ and prints the table. With `--merge` (`make bench CASE=…
MERGE=1`) its results replace the published ones of the same cases.

The exit code is 1 if a case failed. A smoke run fails only if an answer was wrong, not because a
busy machine could not start a JVM in time.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from odradek_bench.case import Bench, Case
from odradek_bench.cases import ALL
from odradek_bench.engines import ENGINES, Odradek, image_python
from odradek_bench.results import Results, new_results
from odradek_bench.runner import run_cases

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "bench/results/results.json"
FULL_DEADLINE_S = 24 * 60.0
SMOKE_DEADLINE_S = 55.0
# Spark's session alone takes a quarter of a minute; a queue case is a JVM of up to 100 clients.
SMOKE_LEAVES_OUT = ("spark-read", "spark-write", "queue-1", "queue-100", "queue-redelivery")


def main() -> int:
    parser = argparse.ArgumentParser(prog="odradek_bench", description=__doc__)
    parser.add_argument("--case", default="", help="only cases whose name begins so, or so, …")
    parser.add_argument("--smoke", action="store_true", help="every case once, small")
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100, help="at most so many per case")
    parser.add_argument("--merge", action="store_true", help="publish the chosen cases")
    parser.add_argument("--python", default=image_python(), help="the interpreter of our broker")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data")
    options = parser.parse_args()
    prefixes = tuple(options.case.split(","))
    chosen = [case for name, case in ALL.items() if name.startswith(prefixes)]
    if options.smoke and not options.case:
        chosen = [case for case in chosen if case.name not in SMOKE_LEAVES_OUT]
    if options.list or not chosen:
        for case in ALL.values():
            print(f"{case.name:24}  {case.title}")
        return 0 if options.list else 2
    chosen = [replace(case, rounds=min(case.rounds, options.rounds)) for case in chosen]
    Odradek.python = options.python
    results = measure(chosen, options.smoke, options.seed, options.directory)
    if options.merge and not options.smoke and PUBLISHED.exists():
        write(results.merged(Results.load(PUBLISHED), list(ALL)), publish=True)
    else:
        write(results, publish=not options.smoke and (options.merge or not options.case))
    for failed in results.failed:
        print(f"FAILED {failed.name}: {failed.error}")
    return 1 if any(case.wrong or not options.smoke for case in results.failed) else 0


def measure(cases: list[Case], smoke: bool, seed: int, directory: Path | None) -> Results:
    own = Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=directory))
    bench = Bench(own, smoke, small=smoke, seed=seed)
    results = new_results(seed, smoke)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    try:
        # In a smoke run cases with a broker of their own use the shared one, to save its start.
        kinds = ("shared", "own") if smoke else ("shared",)
        if any(case.servers in kinds and case.engines == ENGINES for case in cases):
            bench.start_servers()
            say("both brokers are up")
        deadline_s = SMOKE_DEADLINE_S if smoke else FULL_DEADLINE_S
        run_cases(bench, cases, results, say=say, deadline_s=deadline_s)
    finally:
        bench.close()
        shutil.rmtree(own, ignore_errors=True)
    return results


def write(results: Results, publish: bool) -> None:
    from odradek_bench import plots, report  # matplotlib takes a second to import

    images = PUBLISHED.parent if publish else ROOT / "build/bench"
    results.save(images / "results.json")
    names = plots.draw(results, images)
    if publish:
        page = ROOT / "docs/benchmarks.md"
        page.write_text(report.page(results, [f"../bench/results/{name}" for name in names]))
        print(f"written: {page.relative_to(ROOT)}")
    else:
        (images / "benchmarks.md").write_text(report.page(results, names))
        print(f"written: {images.relative_to(ROOT)}/benchmarks.md (not published)")


if __name__ == "__main__":
    sys.exit(main())
