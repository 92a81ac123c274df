"""The measurements of a run: kept as JSON, read by report.py and plots.py.

{"machine": {"cpu": …, "cores": 2}, "versions": {"apache kafka": "4.3.1", …}, "seed": 1,
 "smoke": false, "began": "2026-11-16T21:00:00Z", "seconds": 1500.0,
 "cases": [{"name": "produce-1k-acks-1-1p", "metrics": [{"name": "MB/s", "better": "more"}],
            "samples": {"kafka": [{"MB/s": 120.5}], "odradek": [{"MB/s": 181.0}]},
            "unavailable": {}, "error": "", "measured": {"began": …, "load average": 0.3}, …}]}

A run of some cases can be merged into earlier results (`merged`), so that a machine that is quiet
for a few minutes at a time is enough. Each case has the time and the load average of its
measurement.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from odradek_bench.case import Case, Sample
from odradek_bench.engines import Odradek
from odradek_bench.stats import Ratio, Summary, compare, summarize
from odradek_testkit.engines import kafka_version

OURS, THEIRS = "odradek", "kafka"


@dataclass
class CaseResult:
    """The samples of one case by engine, or why there are none."""

    name: str
    title: str
    metrics: list[dict[str, str]]
    limit: str = ""
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)  # engine -> reason
    skipped: str = ""  # why it did not run
    error: str = ""  # a wrong answer, a server that died
    wrong: bool = False  # our broker gave a wrong answer
    measured: dict[str, Any] = field(default_factory=dict)  # time, commit, load average

    @classmethod
    def of(cls, case: Case) -> CaseResult:
        return cls(case.name, case.title, [asdict(m) for m in case.metrics], case.limit)

    @property
    def headline(self) -> str:
        return self.metrics[0]["name"]

    def better(self, metric: str) -> str:
        return next(m["better"] for m in self.metrics if m["name"] == metric)

    def values(self, engine: str, metric: str) -> list[float]:
        return [sample[metric] for sample in self.samples.get(engine, ()) if metric in sample]

    def summary(self, engine: str, metric: str) -> Summary | None:
        values = self.values(engine, metric)
        return summarize(values) if values else None

    def ratio(self, metric: str) -> Ratio | None:
        ours, theirs = self.values(OURS, metric), self.values(THEIRS, metric)
        return compare(ours, theirs) if ours and theirs else None


@dataclass
class Results:
    """A whole run: machine, versions, cases."""

    seed: int
    smoke: bool
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    began: str = ""
    seconds: float = 0.0
    cases: list[CaseResult] = field(default_factory=list)

    def case(self, name: str) -> CaseResult | None:
        return next((case for case in self.cases if case.name == name), None)

    @property
    def failed(self) -> list[CaseResult]:
        return [case for case in self.cases if case.error]

    def merged(self, older: Results, order: list[str]) -> Results:
        """These cases, and the older ones that were not run again."""
        named = {case.name: case for case in (*older.cases, *self.cases)}
        cases = [named[name] for name in order if name in named]
        return replace(self, cases=cases, seconds=round(older.seconds + self.seconds, 1))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        read = json.loads(path.read_text())
        cases = [CaseResult(**case) for case in read.pop("cases")]
        return cls(**read, cases=cases)


def new_results(seed: int, smoke: bool) -> Results:
    return Results(
        seed, smoke, machine(), versions(), datetime.now(UTC).isoformat(timespec="seconds")
    )


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text()  # psutil does not know the model
    models = [line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory GB": round(psutil.virtual_memory().total / (1024 * 1e6)),
        "kernel": platform.release(),
        "load average before": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "no git"


def measured_now() -> dict[str, Any]:
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "load average": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    python = subprocess.run(
        [Odradek.python, "-c", "import platform; print(platform.python_version())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {
        "odradek": f"{version('odradek')} ({commit()})",
        "apache kafka": kafka_version(),
        "python of our broker": f"{python.stdout.strip()} ({Odradek.python})",
        "python of the load": platform.python_version(),
        "java": (java.stderr.splitlines() or ["?"])[0],
        "librdkafka": str(confluent_kafka.libversion()[0]),
    }
