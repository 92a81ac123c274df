"""A soft goal: every broker has its share of a load, which is a sum over replicas and leaders.

A broker is balanced within a band around its share; the score is what is outside of the bands, as
a fraction of the total. Ten leaders on three brokers: the share is 3.33, the band 3 … 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odradek_operator.kafka.balance.model import Bools, Cluster, Floats

TOLERANCE = 0.10  # a broker within 10 % of its share is balanced
# Above the rounding errors of sums of millions of loads, far below one replica among a million.
EPSILON = 1e-9


class Band(NamedTuple):
    """Per broker, as fractions of the total."""

    target: Floats
    lower: Floats
    upper: Floats


def beyond(load: Floats, lower: Floats, upper: Floats) -> Floats:
    """How far loads are outside of their bands; 0 inside."""
    outside: Floats = np.maximum(np.maximum(load - upper, lower - load), 0.0)
    return outside


class LoadGoal:
    name = ""  # in commands and documents
    title = ""  # for people
    unit = ""  # of the total
    counted = False  # in whole replicas or leaders, so a band contains a whole number

    def per_replica(self, cluster: Cluster) -> Floats:
        """P: what each replica adds to its broker."""
        return np.zeros(cluster.partitions)

    def per_leader(self, cluster: Cluster) -> Floats:
        """P: what the leader adds to its broker in addition."""
        return np.zeros(cluster.partitions)

    def total(self, cluster: Cluster) -> float:
        per_replica = self.per_replica(cluster) @ cluster.factor
        return float(per_replica + self.per_leader(cluster).sum())

    def shares(self, cluster: Cluster, counted: Bools) -> Floats:  # noqa: ARG002
        """B: the part of the load that each broker should have; all together 1."""
        shares: Floats = counted / max(1, int(counted.sum()))
        return shares

    def band(self, cluster: Cluster, counted: Bools, receives: Bools) -> Band:
        """`counted`: brokers with a share; the others have no band, and no excess."""
        taking = counted & receives if (counted & receives).any() else counted
        target = self.shares(cluster, taking)
        lower, upper = target * (1 - TOLERANCE), target * (1 + TOLERANCE)
        total = self.total(cluster)
        if total <= 0:  # without load there is nothing to share
            lower = np.zeros_like(lower)
        elif self.counted:
            lower = np.minimum(lower, np.floor(target * total + EPSILON) / total)
            upper = np.maximum(upper, np.ceil(target * total - EPSILON) / total)
        # A broker that receives nothing has no share, but may keep what others have at most.
        upper = np.where(taking, upper, np.where(counted, upper.max(), np.inf))
        return Band(target, np.where(taking, lower, 0.0), upper)
