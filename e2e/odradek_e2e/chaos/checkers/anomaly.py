"""The result of a checker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SHOWN_MAX = 12  # thousands of anomalies usually have one cause


@dataclass(frozen=True)
class Anomaly:
    """One violation."""

    kind: str  # lost, duplicated, reordered, …
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.subject}): {self.text}"


@dataclass
class Verdict:
    """All violations of a subject, and how much was checked."""

    subject: str
    anomalies: list[Anomaly] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # acknowledged, transactions, …

    def add(self, kind: str, text: str) -> None:
        self.anomalies.append(Anomaly(kind, self.subject, text))

    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in self.anomalies}


def shown(anomalies: list[Anomaly]) -> str:
    """How many of each kind, and the first of them."""
    counts = Counter(f"{anomaly.kind} ({anomaly.subject})" for anomaly in anomalies)
    lines = [f"{count} x {kind}" for kind, count in sorted(counts.items())]
    return "\n".join([*lines, *map(str, anomalies[:SHOWN_MAX])])
