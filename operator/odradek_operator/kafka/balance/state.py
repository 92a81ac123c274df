"""An assignment that the search changes: where the replicas are now, and the load of each broker.

The load of every goal is kept as a fraction of the cluster's total, so that goals and the bytes of
a move compare: 0.01 is one hundredth of all bytes, requests or leaders. A broker's `excess` is how
much of the total it has above its band, or lacks below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from odradek_operator.kafka.balance.document import NEGLIGIBLE
from odradek_operator.kafka.balance.goals.base import LoadGoal, beyond
from odradek_operator.kafka.balance.model import NO_BROKER, Bools, Cluster, Floats, Ints, Numbers


class State:
    """Shapes: G goals, B brokers, P partitions, T topics."""

    def __init__(
        self, cluster: Cluster, goals: Sequence[LoadGoal], leaving: Sequence[int] = ()
    ) -> None:
        self.cluster = cluster
        self.goals = tuple(goals)
        self.replicas: Ints = cluster.replicas.copy()  # P × R
        self.open: Bools = cluster.receives.copy()  # B: may receive replicas and leaders
        self.open[list(leaving)] = False
        self.leaving: Bools = np.zeros(cluster.brokers, dtype=np.bool_)
        self.leaving[list(leaving)] = True
        total = cluster.size_bytes @ cluster.factor
        self.size: Floats = cluster.size_bytes / total if total > 0 else np.zeros_like(
            cluster.size_bytes
        )  # P: fraction of all bytes  # fmt: skip
        self.per_replica, self.per_leader = self._weights()  # P × G
        counted = cluster.live & ~self.leaving
        bands = [goal.band(cluster, counted, self.open) for goal in self.goals]
        shape = (len(bands), cluster.brokers)
        self.target: Floats = np.array([b.target for b in bands]).reshape(shape)
        self.lower: Floats = np.array([b.lower for b in bands]).reshape(shape)
        self.upper: Floats = np.array([b.upper for b in bands]).reshape(shape)
        sizes = np.bincount(cluster.racks[counted], minlength=1)
        self.racks = int(cluster.racks.max(initial=0)) + 1
        # By number of replicas: how many may share a rack, and how many racks they have to use.
        self.per_rack_max = _per_rack_max(sizes, cluster.replicas.shape[1])
        self.racks_min: Ints = np.minimum(
            np.arange(cluster.replicas.shape[1] + 1), (sizes > 0).sum()
        ).astype(np.int32)
        # A broker that is outside of its band by less is balanced: a thousandth of a mean share.
        self.negligible = NEGLIGIBLE / max(1, int(counted.sum()))
        # A step has a number; of each broker, the last step that changed it.
        self.clock = 0
        self.changed: Ints = np.zeros(cluster.brokers, dtype=np.int32)
        # Of each broker, where it is in `replicas` (flat, ascending).
        self._places = _places(self.replicas, cluster.brokers)
        self.recount()

    def _weights(self) -> tuple[Floats, Floats]:
        """The load that each replica, and additionally each leader, adds to each goal."""
        shape = (self.cluster.partitions, len(self.goals))
        per_replica, per_leader = np.zeros(shape), np.zeros(shape)
        for column, goal in enumerate(self.goals):
            total = goal.total(self.cluster)
            if total > 0:
                per_replica[:, column] = goal.per_replica(self.cluster) / total
                per_leader[:, column] = goal.per_leader(self.cluster) / total
        return per_replica, per_leader

    def recount(self) -> None:
        """Derives all sums from `replicas`; also drops the rounding errors of many moves."""
        cluster, brokers = self.cluster, self.cluster.brokers
        rows, places = np.nonzero(self.replicas != NO_BROKER)
        at = self.replicas[rows, places]
        leaders = self.replicas[:, 0]
        self.load: Floats = np.array(
            [
                np.bincount(at, self.per_replica[rows, g], brokers)
                + np.bincount(leaders, self.per_leader[:, g], brokers)
                for g in range(len(self.goals))
            ]
        ).reshape(len(self.goals), brokers)
        self.used_bytes: Floats = np.bincount(at, cluster.size_bytes[rows], brokers).astype(
            np.float64
        )
        self.held: Floats = np.bincount(at, minlength=brokers).astype(np.float64)
        flat = cluster.topic[rows].astype(np.int64) * brokers + at
        self.of_topic: Ints = (
            np.bincount(flat, minlength=len(cluster.topics) * brokers)
            .astype(np.int32)
            .reshape(len(cluster.topics), brokers)
        )
        self.excess: Floats = beyond(self.load, self.lower, self.upper)
        self._share = np.where(self.target > 0, self.target, np.inf)
        self.pressure: Floats = (self.load / self._share).sum(axis=0)  # B: over all goals

    # -- read --------------------------------------------------------------------------------------

    def scores(self) -> Floats:
        """G: what each goal's brokers have above or below their bands, of the total."""
        found: Floats = self.excess.sum(axis=1)
        return found

    def weight(self, partition: int, place: int) -> Floats:
        """G: what moves if this replica moves."""
        weight: Floats = self.per_replica[partition]
        return weight + self.per_leader[partition] if place == 0 else weight

    def on(self, broker: int) -> tuple[Numbers, Numbers]:
        """The replicas of a broker: partitions and places."""
        rows, places = np.divmod(self._places[broker], self.replicas.shape[1])
        return rows, places

    def use(self, broker: int, goal: int) -> float:
        """The load of a broker relative to its share: 1.0 is as planned."""
        return float(self.load[goal, broker] / self._share[goal, broker])

    # -- change ------------------------------------------------------------------------------------

    def move(self, partition: int, place: int, to: int) -> None:
        src = int(self.replicas[partition, place])
        self.replicas[partition, place] = to
        at, old, new = (
            partition * self.replicas.shape[1] + place,
            self._places[src],
            self._places[to],
        )
        gone, come = int(np.searchsorted(old, at)), int(np.searchsorted(new, at))
        self._places[src] = np.concatenate((old[:gone], old[gone + 1 :]))
        self._places[to] = np.concatenate((new[:come], [at], new[come:]))
        size, topic = self.cluster.size_bytes[partition], self.cluster.topic[partition]
        for broker, sign in ((src, -1), (to, 1)):
            self.used_bytes[broker] += sign * size
            self.held[broker] += sign
            self.of_topic[topic, broker] += sign
        self._shift(src, to, self.weight(partition, place))

    def lead(self, partition: int, place: int) -> None:
        """Swaps the replica at `place` with the preferred leader."""
        row = self.replicas[partition]
        src, to = int(row[0]), int(row[place])
        row[0], row[place] = to, src
        at, old, new = partition * self.replicas.shape[1], self._places[src], self._places[to]
        old[np.searchsorted(old, at)] = at + place  # in place: both stay ascending
        new[np.searchsorted(new, at + place)] = at
        self._shift(src, to, self.per_leader[partition])

    def _shift(self, src: int, to: int, weight: Floats) -> None:
        pair = [src, to]
        self.clock += 1
        self.changed[pair] = self.clock
        self.load[:, src] -= weight
        self.load[:, to] += weight
        load = self.load[:, pair]
        self.excess[:, pair] = beyond(load, self.lower[:, pair], self.upper[:, pair])
        self.pressure[pair] = (load / self._share[:, pair]).sum(axis=0)


def _places(replicas: Ints, brokers: int) -> list[Numbers]:
    flat = replicas.ravel()
    order = np.argsort(flat, kind="stable")
    return [order[a:b] for a, b in pairwise(np.searchsorted(flat[order], np.arange(brokers + 1)))]


def _per_rack_max(sizes: NDArray[np.intp], widest: int) -> Ints:
    """Racks of 1, 5 and 5 brokers: of three replicas one each, of six three (1 + 3 + 2)."""
    limits = np.ones(widest + 1, dtype=np.int32)
    for factor in range(1, widest + 1):
        limit = 1
        while limit < widest and np.minimum(sizes, limit).sum() < factor:
            limit += 1
        limits[factor] = limit
    return limits
