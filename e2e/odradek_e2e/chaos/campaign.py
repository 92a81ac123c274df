"""Rounds one after the other until the time is over; what they found; histories kept on failure."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from odradek_e2e.chaos import report
from odradek_e2e.chaos.checkers import check_directory
from odradek_e2e.chaos.checkers.anomaly import shown
from odradek_e2e.chaos.planted import PLANTED
from odradek_e2e.chaos.round import Round, Settings
from odradek_e2e.chaos.schedule import plan
from odradek_e2e.chaos.world import clocks, sandbox

NOT_RUN = 2
PLANTED_SEEDS = 4  # at most so many rounds to find one


@dataclass(frozen=True)
class Options:
    """The command line."""

    engine: str
    seed: int
    minutes: float
    fault_seconds: float
    per_second: int
    java: bool
    kinds: tuple[str, ...]
    workloads: tuple[str, ...]
    directory: Path
    planted: str


def run(options: Options) -> int:
    """1 if a round found something."""
    if why := sandbox.obstacle():
        print(f"NOT RUN: chaos needs namespaces: {why}")
        return NOT_RUN
    moved = "by a preloaded library" if clocks.library() else "NOT moved: no C compiler"
    say("brokers in network namespaces; delay and loss by a tun device in user space; wall clocks "
        f"{moved}")  # fmt: skip
    until = time.monotonic() + 60 * options.minutes
    results: list[report.Result] = []
    seed = options.seed
    while not results or time.monotonic() + results[-1].seconds < until:
        results.append(_round(options, seed))
        say(results[-1].line())
        seed += 1
    summary = report.Summary(options.engine, results)
    print(summary.text())
    options.directory.mkdir(parents=True, exist_ok=True)
    (options.directory / f"{options.engine}.json").write_text(summary.json())
    return 1 if summary.failed else 0


def _round(options: Options, seed: int) -> report.Result:
    """In a sandbox of its own; the history is removed unless something was found."""
    directory = (options.directory / f"{options.engine}-{seed}").resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [
        sys.executable, "-m", "odradek_e2e.chaos", "round", "--engine", options.engine,
        "--seed", str(seed), "--fault-seconds", str(options.fault_seconds),
        "--per-second", str(options.per_second), "--directory", str(directory),
        "--java" if options.java else "--no-java", "--planted", options.planted,
    ]  # fmt: skip
    if options.workloads:
        command += ["--workloads", *options.workloads]
    if options.kinds:
        command += ["--kinds", *options.kinds]
    began = time.monotonic()
    code = sandbox.inside(command)
    result = judge(directory)
    result.seconds = time.monotonic() - began
    if code != 0 and not (directory / "round.json").exists():
        result.problems.append(f"the round ended with exit code {code}")
    if not result.failed:
        shutil.rmtree(directory)
    else:
        for image in directory.glob("broker-*/disk.img"):
            image.unlink()
    return result


def one_round(options: Options) -> int:
    """Inside of the sandbox."""
    assert sandbox.is_inside(), "a round needs namespaces of its own: use `run`"
    made = plan(options.seed, options.fault_seconds, options.kinds)
    settings = Settings(options.engine, options.directory, options.per_second, options.java,
                        options.planted, options.workloads)  # fmt: skip
    Round(made, settings).run()
    return 0


def judge(directory: Path) -> report.Result:
    """The directory of a round, evaluated: its history checked, its numbers read."""
    path = directory / "round.json"
    outcome = json.loads(path.read_text()) if path.exists() else {}
    return report.Result.of(directory, outcome, check_directory(directory))


def check(directory: Path) -> int:
    result = judge(directory)
    print(result.line())
    for verdict in result.verdicts.values():
        print(f"  {verdict.subject}: {dict(verdict.counts)}")
    if result.failed:
        print("\n".join([*result.problems, shown(result.anomalies)]))
    return 1 if result.failed else 0


def planted(options: Options, only: list[str]) -> int:
    """Each planted bug must show as an anomaly of the history."""
    missed = []
    for bug in PLANTED:
        if only and bug.name not in only:
            continue
        found = ""
        for seed in range(options.seed, options.seed + PLANTED_SEEDS):
            result = _round(
                replace(options, planted=bug.name, kinds=bug.kinds, workloads=bug.workloads), seed
            )
            kinds = sorted({f"{a.kind} ({a.subject})" for a in result.anomalies})
            if kinds:
                found = f"seed {seed}: {', '.join(kinds)}"
                break
            say(f"  {bug.name}: not by seed {seed} {result.problems}")
        say(f"{bug.name}: {found or 'NOT FOUND'}")
        if not found:
            missed.append(bug.name)
    return 1 if missed else 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
