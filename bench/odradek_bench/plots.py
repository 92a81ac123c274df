"""The plots of the report: all headline ratios, bulk rates with their limits, latencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # files only, no display
import matplotlib.pyplot as plt

from odradek_bench.results import OURS, THEIRS, CaseResult, Results

COLOURS = {"limit": "#bbbbbb", THEIRS: "#d98032", OURS: "#2f6f9f"}
LABELS = {"limit": "limit of the machine", THEIRS: "Apache Kafka", OURS: "Odradek"}
LATENCY_METRICS = ("ack p50 ms", "ack p99 ms", "end to end p50 ms", "end to end p99 ms")


def draw(results: Results, directory: Path) -> list[str]:
    """Writes a plot for everything that was measured; the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, plot in (("ratios", _ratios), ("bulk", _bulk), ("latency", _latency)):
        figure = plot(results)
        if figure is not None:
            figure.savefig(directory / f"{name}.png", dpi=110, bbox_inches="tight")
            plt.close(figure)
            drawn.append(f"{name}.png")
    return drawn


def _ratios(results: Results) -> Any:
    """Every case's headline as "how many times better": right of 1 is always good."""
    rows = []
    for case in results.cases:
        ratio = case.ratio(case.headline)
        if ratio is not None and ratio.median > 0:
            factor = ratio.median if case.better(case.headline) == "more" else 1 / ratio.median
            rows.append((case.title, factor))
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(rows) + 1))
    colours = [COLOURS[OURS] if factor >= 1 else COLOURS[THEIRS] for _, factor in rows]
    axes.barh([title for title, _ in rows], [factor for _, factor in rows], color=colours)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("times better than Apache Kafka (headline of each case, logarithmic)")
    return figure


def _bulk(results: Results) -> Any:
    cases = [c for c in results.cases if c.limit and c.headline == "MB/s" and c.samples]
    if not cases:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.55 * len(cases) + 1))
    for place, engine in enumerate(("limit", THEIRS, OURS)):
        heights = [_bulk_value(results, case, engine) for case in cases]
        at = [index + (place - 1) * 0.27 for index in range(len(cases))]
        axes.barh(at, heights, 0.25, color=COLOURS[engine], label=LABELS[engine])
    axes.set_yticks(range(len(cases)), [case.title for case in cases])
    axes.invert_yaxis()
    axes.set_xlabel("MB/s")
    axes.legend()
    return figure


def _bulk_value(results: Results, case: CaseResult, engine: str) -> float:
    source = results.case(case.limit) if engine == "limit" else case
    summary = source.summary(engine, "MB/s") if source else None
    return summary.median if summary else 0.0


def _latency(results: Results) -> Any:
    cases = [c for c in results.cases if c.headline == "ack p50 ms" and c.samples]
    if not cases:
        return None
    figure, panels = plt.subplots(1, len(cases), figsize=(4.5 * len(cases), 3), squeeze=False)
    for axes, case in zip(panels[0], cases, strict=True):
        for place, engine in enumerate((THEIRS, OURS)):
            found = [case.summary(engine, metric) for metric in LATENCY_METRICS]
            at = [index + place * 0.4 for index in range(len(found))]
            heights = [summary.median if summary else 0.0 for summary in found]
            axes.bar(at, heights, 0.38, color=COLOURS[engine], label=LABELS[engine])
        axes.set_xticks(
            [index + 0.2 for index in range(len(LATENCY_METRICS))],
            [metric.removesuffix(" ms").replace("end to end", "e2e") for metric in LATENCY_METRICS],
            fontsize=8,
        )
        axes.set_yscale("log")
        axes.set_ylabel("ms")
        axes.set_title(case.title, fontsize=9)
        axes.legend(fontsize=8)
    return figure
