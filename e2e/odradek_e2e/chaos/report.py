"""The report of a campaign: a line per round, and a summary in numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek_e2e.chaos import history
from odradek_e2e.chaos.checkers.anomaly import Anomaly, Verdict, shown

DISK_EXITS = (74, 75)  # of our broker, when its last log directory is gone or full
DISK_KINDS = ("disk-full", "disk-fails")


@dataclass
class Result:
    """One round: what was found, and how much was checked."""

    directory: Path
    seed: int
    size: int
    problems: list[str]
    verdicts: dict[str, Verdict]
    faults: Counter[str] = field(default_factory=Counter)
    elected_s: list[float] = field(default_factory=list)  # after kill -9 of a leader
    elected_with_controller_s: list[float] = field(default_factory=list)
    recovered_s: float = 0.0
    tracebacks: int = 0
    seconds: float = 0.0
    load: float = 0.0
    patient: bool = False
    exits: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, directory: Path, outcome: dict[str, Any], verdicts: dict[str, Verdict]) -> Result:
        result = cls(
            directory, outcome.get("seed", -1), outcome.get("size", 0),
            list(outcome.get("problems", ["round.json is missing"])), verdicts,
        )  # fmt: skip
        result.recovered_s = outcome.get("recovered_s") or 0.0
        result.tracebacks = outcome.get("tracebacks", 0)
        result.load, result.patient = outcome.get("load", 0.0), outcome.get("patient", False)
        hit: set[int] = set()
        for event in history.events(directory, "faults"):
            if event["e"] == "fault":
                result.faults[event["kind"]] += 1
                if event["kind"] in DISK_KINDS:
                    hit.add(event["broker"])
            elif event["e"] == "elected" and event["took"] is not None:
                which = event["controller"]
                (result.elected_with_controller_s if which else result.elected_s).append(
                    event["took"]
                )
        for broker, code in outcome.get("exits", []):
            result.exits[int(code)] += 1
            if broker not in hit:
                result.problems.append(f"broker {broker} died by itself (exit code {code})")
        return result

    @property
    def anomalies(self) -> list[Anomaly]:
        return [anomaly for verdict in self.verdicts.values() for anomaly in verdict.anomalies]

    @property
    def failed(self) -> bool:
        return bool(self.problems or self.anomalies)

    def count(self, what: str) -> int:
        return sum(
            n for v in self.verdicts.values() for name, n in v.counts.items() if name == what
        )

    def line(self) -> str:
        text = (
            f"seed {self.seed}: {self.size} brokers, {sum(self.faults.values())} faults, "
            f"{self.count('acknowledged'):,} writes and {self.count('transactions ok'):,} "
            f"transactions acknowledged, in sync after {self.recovered_s:.1f} s"
        )
        if self.patient:
            text += f", long sessions (load {self.load:.0f})"
        if self.exits:
            text += f", exits {dict(self.exits)}"
        if self.tracebacks:
            text += f", {self.tracebacks} tracebacks in the logs"
        if not self.failed:
            return f"{text}: ok"
        found = "\n".join([*self.problems, shown(self.anomalies)])
        return f"{text}: FAILED, history in {self.directory}\n{found}"


@dataclass
class Summary:
    """All rounds of a campaign."""

    engine: str
    results: list[Result]

    @property
    def failed(self) -> bool:
        return any(result.failed for result in self.results)

    def totals(self) -> dict[str, Any]:
        results = self.results
        faults: Counter[str] = sum((result.faults for result in results), Counter())
        elected = [s for r in results for s in r.elected_s]
        with_controller = [s for r in results for s in r.elected_with_controller_s]
        return {
            "engine": self.engine,
            "seeds": [result.seed for result in results],
            "minutes": round(sum(result.seconds for result in results) / 60, 1),
            "acknowledged writes": sum(r.count("acknowledged") for r in results),
            "writes without an answer": sum(r.count("unknown") for r in results),
            "transactions committed": sum(r.count("transactions ok") for r in results),
            "transactions aborted": sum(r.count("transactions aborted") for r in results),
            "transactions of unknown outcome": sum(
                r.count("transactions unknown") for r in results
            ),
            "offset commits": sum(r.count("commits ok") for r in results),
            "records copied exactly once": sum(r.count("copied") for r in results),
            "topics created anew": sum(r.count("topics created") for r in results),
            "answers about offsets": sum(r.count("offsets asked") for r in results),
            "fault episodes": sum(faults.values()),
            "faults": dict(sorted(faults.items())),
            "leader after kill -9, s": percentiles(elected),
            "leader after kill -9 of the controller too, s": percentiles(with_controller),
            "rounds with long sessions": sum(result.patient for result in results),
            "anomalies": sum(len(result.anomalies) for result in results),
            "failed rounds": [result.seed for result in results if result.failed],
        }

    def text(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.totals().items())

    def json(self) -> str:
        return json.dumps(self.totals(), indent=1)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"n": len(ordered), "p50": at(0.5), "p99": at(0.99), "max": round(ordered[-1], 2)}
