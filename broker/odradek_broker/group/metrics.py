"""Counters of the group coordinator, over all its shards."""

from dataclasses import dataclass


@dataclass(slots=True)
class GroupMetrics:
    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
