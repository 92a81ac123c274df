"""`make bench`, `make bench CASE=name`, `make bench-smoke`; also `--list`.

A run of all cases in full writes docs/benchmarks.md with its plots and bench/results/results.json;
anything less writes build/bench/ and prints the table, so that no half measurement is published.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from odradek_bench.case import Bench, Case
from odradek_bench.cases import ALL
from odradek_bench.engines import ENGINES
from odradek_bench.results import Results, new_results
from odradek_bench.runner import run_cases

ROOT = Path(__file__).parents[2]
FULL_DEADLINE_S = 28 * 60.0
SMOKE_DEADLINE_S = 55.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="odradek_bench", description=__doc__)
    parser.add_argument("--case", default="", help="only cases whose name begins with this")
    parser.add_argument("--smoke", action="store_true", help="every case once, small")
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data")
    options = parser.parse_args()
    chosen = [case for name, case in ALL.items() if name.startswith(options.case)]
    if options.list or not chosen:
        for case in ALL.values():
            print(f"{case.name:24}  {case.title}")
        return 0 if options.list else 2
    results = measure(chosen, options.smoke, options.seed, options.directory)
    publish = not options.smoke and not options.case
    write(results, publish)
    for failed in results.failed:
        print(f"FAILED {failed.name}: {failed.error}")
    return 1 if results.failed else 0


def measure(cases: list[Case], smoke: bool, seed: int, directory: Path | None) -> Results:
    own = Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=directory))
    bench = Bench(own, smoke, small=smoke, seed=seed)
    results = new_results(seed, smoke)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    try:
        if any(case.servers == "shared" and case.engines == ENGINES for case in cases) or smoke:
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

    images = ROOT / "bench/results" if publish else ROOT / "build/bench"
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
