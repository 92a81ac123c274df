"""Medians, spread and ratios of a few rounds: this machine is noisy, so ratios count.

    summarize([10, 12, 50])              -> Summary(median=12, low=10, high=50, rounds=3)
    compare([20, 24, 90], [10, 12, 50])  -> Ratio(median=2.0, low=1.8, high=2.0)

A ratio is ours / Apache Kafka's. Its median is that of the medians; low and high are the extremes
of the rounds taken in pairs, because round 3 of both ran within the same few seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Summary:
    """Median and spread of the rounds of one metric."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self) -> float:
        """(high - low) / median; 0 for one round, and 0 where nothing was measured."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Ratio:
    """Ours to theirs, round by round: median and spread."""

    median: float
    low: float
    high: float


def summarize(values: Sequence[float]) -> Summary:
    assert values, "a case that ran no round has no summary"
    return Summary(median(values), min(values), max(values), len(values))


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """None where Apache Kafka's value is zero (idle CPU below one clock tick, say)."""
    base = median(theirs)
    pairs = [mine / other for mine, other in zip(ours, theirs, strict=False) if other]
    if not base or not pairs:
        return None
    middle = median(ours) / base
    return Ratio(middle, min(*pairs, middle), max(*pairs, middle))


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least `fraction` of all values do not exceed (nearest rank)."""
    assert values
    assert 0 < fraction <= 1
    ordered = sorted(values)
    return ordered[math.ceil(fraction * len(ordered)) - 1]
