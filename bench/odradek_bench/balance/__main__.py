"""`make bench-balance`: time and memory of the optimizer over the size of generated clusters, and a
comparison with other algorithms and with exact solutions of small clusters.

Prints tables for docs/how-to/rebalance.md and draws docs/assets/balance-time.png. Takes eight
minutes of one core, five of them for the exact solutions; each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # files only, no display
import matplotlib.pyplot as plt
import numpy as np

from odradek_bench.balance import baselines, compare, exact
from odradek_testkit.skewed_clusters import skewed

SIZES = ((10, 1_000), (30, 10_000), (50, 30_000), (100, 100_000), (170, 300_000), (300, 1_000_000))
MANY = ((1_000, 100_000), (1_000, 1_000_000))  # brokers: few replicas on each
GOALS_S = ((10_000, 2.0), (100_000, 30.0), (1_000_000, 600.0))
PLOT = Path(__file__).parents[3] / "docs/assets/balance-time.png"
FIT_FROM = 10_000  # replicas
SMALL = 10  # clusters that are solved exactly
SMALL_BROKERS, SMALL_REPLICAS = 5, 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas-max", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exact", type=int, default=SMALL, help="clusters that HiGHS solves, too")
    options = parser.parse_args()
    print("| brokers | replicas | CPU | memory | steps | bytes moved | disk | bytes in |")
    print("|---|---|---|---|---|---|---|---|")
    measured, many = (
        [
            _row(_measure(brokers, replicas, options.seed))
            for brokers, replicas in sizes
            if replicas <= options.replicas_max
        ]
        for sizes in (SIZES, MANY)
    )
    print(f"\ntime grows with replicas^{_exponent(measured):.2f}; {_draw(measured, many)}\n")
    print("\n".join(compare.rows(_compared(options.seed))))
    if options.exact:
        print(f"\n{_gap(options.seed, options.exact)}")


def _row(m: dict[str, Any]) -> dict[str, Any]:
    """Prints it, for the table."""
    before, after = m["before"], m["after"]
    scores = " | ".join(f"{before[g]:.1%} → {after[g]:.2%}" for g in ("disk", "bytes-in"))
    print(
        f"| {m['brokers']:,} | {m['replicas']:,} | {m['cpu_s']:.2f} s | {m['peak_mb']} MB "
        f"| {m['steps']:,} | {m['bytes_moved']:.1%} | {scores} |",
        flush=True,
    )
    return m


def _measure(brokers: int, replicas: int, seed: int) -> dict[str, Any]:
    words = [str(brokers), str(replicas), str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "odradek_bench.balance.one", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _exponent(measured: list[dict[str, Any]]) -> float:
    """From FIT_FROM on: a small cluster takes longer if it is hard to balance."""
    points = [(m["replicas"], m["cpu_s"]) for m in measured if m["replicas"] >= FIT_FROM]
    sizes, times = zip(*points, strict=True)
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _draw(measured: list[dict[str, Any]], many: list[dict[str, Any]]) -> str:
    figure, axes = plt.subplots(figsize=(7, 4))
    for found, color, label in (
        (measured, "#2f6f9f", "10 to 300 brokers, one core"),
        (many, "#b5532a", "1,000 brokers, one core"),
    ):
        sizes, times = [m["replicas"] for m in found], [m["cpu_s"] for m in found]
        axes.loglog(sizes, times, "o-", color=color, label=label)
    axes.loglog(*zip(*GOALS_S, strict=True), "v--", color="#bbbbbb", label="goal")
    axes.set_xlabel("replicas")
    axes.set_ylabel("CPU seconds until the proposal")
    axes.legend()
    axes.grid(visible=True, which="major", alpha=0.3)
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, dpi=110, bbox_inches="tight")
    plt.close(figure)
    return f"plot: {PLOT.relative_to(PLOT.parents[2])}"


def _compared(seed: int) -> list[compare.Quality]:
    cluster = skewed(12, 1_200, seed)
    return [
        compare.rate("as it is", cluster, compare.unchanged),
        compare.rate("by counts (`rebalance: auto`)", cluster, baselines.by_counts),
        compare.rate("greedy by disk", cluster, baselines.greedy),
        compare.rate("the optimizer", cluster, compare.ours),
    ]


def _gap(seed: int, clusters: int) -> str:
    """How far the optimizer is from the best assignment of small clusters."""
    gaps, starts, proved = [], [], 0
    for number in range(clusters):
        cluster = skewed(SMALL_BROKERS, SMALL_REPLICAS, seed + number)
        best, optimal = exact.solve(cluster)
        proved += optimal
        starts.append(compare.objective(cluster, cluster.replicas)[0])
        found = compare.objective(cluster, compare.ours(cluster))[0]
        gaps.append(found - compare.objective(cluster, best)[0])
    before, above = statistics.median(starts), statistics.median(gaps)
    return (
        f"{clusters} clusters of {SMALL_BROKERS} brokers and {SMALL_REPLICAS} replicas, {proved} "
        f"of them solved to optimality within {exact.SECONDS_MAX:.0f} s: the weighted sum is "
        f"{before:.4f} before (median); the optimizer's is above the best by {above:.4f} in the "
        f"median, {max(gaps):.4f} at most"
    )


if __name__ == "__main__":
    main()
