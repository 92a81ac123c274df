"""Runs cases in rounds that alternate between the engines, within a time limit.

Round 1 begins with Apache Kafka, round 2 with ours, and so on, so that neither always benefits
from the state that the other left (caches, deleted files). A case that fails (a wrong answer, a
server that died) is reported and the run continues; the exit code shows it at the end. A case that
has used up its time starts no further round; when the time of the run is over, the remaining cases
are listed as skipped.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import psutil
from confluent_kafka import KafkaException

from odradek_bench.case import Bench, Case, Sample, UnavailableError
from odradek_bench.results import THEIRS, CaseResult, Results, measured_now
from odradek_bench.verify import StalledError, WrongAnswerError
from odradek_cli.processes import StartFailedError

FAILURES = (
    WrongAnswerError, StalledError, StartFailedError, KafkaException, OSError, AssertionError,
    subprocess.SubprocessError, psutil.Error,
)  # fmt: skip


def run_cases(
    bench: Bench, cases: Iterable[Case], results: Results, *, say: Callable[[str], None],
    deadline_s: float,
) -> None:  # fmt: skip
    began = time.monotonic()
    cases = list(cases)
    previous = ""
    for number, case in enumerate(cases, 1):
        if previous and case.servers != previous and not (bench.smoke and case.servers == "own"):
            bench.close()  # the next cases use other servers: free the cores
        previous = case.servers
        result = CaseResult.of(case)
        result.measured = measured_now()
        results.cases.append(result)
        if time.monotonic() - began > deadline_s:
            result.skipped = f"not run: the {deadline_s:.0f} s of the run were over"
        else:
            _run_case(bench, case, result, say, f"[{number:2}/{len(cases)}]")
        say(f"[{number:2}/{len(cases)}] {line(result)}")
    results.seconds = round(time.monotonic() - began, 1)
    results.machine["load average after"] = round(os.getloadavg()[0], 2)


def _run_case(
    bench: Bench, case: Case, result: CaseResult, say: Callable[[str], None], place: str
) -> None:
    give_up = time.monotonic() + case.budget_s
    if case.servers != "own" and not bench.smoke:
        # The same servers: a JVM compiles what it runs often.
        warming = [replace(bench, small=True)] * case.warm_up + [bench] * case.warm_rounds
        for warm, engine in itertools.product(warming, case.engines):
            _run_round(warm, case, engine, CaseResult.of(case))
    rounds = case.smoke_rounds if bench.smoke else case.rounds
    for number in range(rounds):
        if number and time.monotonic() > give_up:
            say(f"{place} {case.name}: its {case.budget_s:.0f} s are over after {number} rounds")
            return
        for engine in case.engines if number % 2 == 0 else case.engines[::-1]:
            if engine in result.unavailable:
                continue
            _run_round(bench, case, engine, result)
            if result.error:
                return
            if not bench.smoke and result.samples.get(engine):
                seen = brief(result.samples[engine][-1])
                say(f"{place} {case.name} round {number + 1}/{rounds} {engine}: {seen}")


def _run_round(bench: Bench, case: Case, engine: str, result: CaseResult) -> None:
    bench.settle()
    try:
        result.samples.setdefault(engine, []).append(case.run(bench, engine))
    except UnavailableError as reason:
        result.unavailable[engine] = str(reason)
    except FAILURES as error:
        result.error = f"{engine}: {error or type(error).__name__}"
        result.wrong = isinstance(error, WrongAnswerError) and engine != THEIRS


def brief(sample: Sample) -> str:
    return ", ".join(f"{number(value)} {name}" for name, value in sample.items())


def number(value: float) -> str:
    """Three significant digits: 12345 -> 12,345; 123.4 -> 123; 1.234 -> 1.23."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def line(result: CaseResult) -> str:
    """One line per case: the headline of both engines and the ratio."""
    metric, parts = result.headline, [f"{result.name:24}"]
    if result.error:
        return f"{parts[0]} FAILED: {result.error}"
    if result.skipped:
        return f"{parts[0]} {result.skipped}"
    for engine in ("limit", "kafka", "odradek"):
        if summary := result.summary(engine, metric):
            parts.append(f"{engine} {number(summary.median)}")
        elif engine in result.unavailable:
            parts.append(f"{engine}: {result.unavailable[engine]}")
    parts.append(metric)
    if ratio := result.ratio(metric):
        won = (ratio.median > 1) == (result.better(metric) == "more")
        parts.append(f"-> {ratio.median:.2f}x ({'better' if won else 'worse'})")
    return "  ".join(parts)
