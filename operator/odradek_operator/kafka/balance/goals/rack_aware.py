"""The replicas of a partition are in as many racks as possible, and spread evenly over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import NO_BROKER, Bools, Ints, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class RackAware(HardGoal):
    name = "rack-aware"
    title = "Replicas in different racks"

    def allowed(self, state: State, partition: int, place: int, to: Numbers) -> Bools:
        """Racks in which the partition would break the rule no more than now."""
        fine: Bools = self._change(state, partition, place) <= 0
        return fine.take(state.cluster.racks.take(to))

    def repairing(self, state: State, partition: int, place: int) -> Bools:
        """B: the brokers to which the replica could move so that the rule is broken less."""
        less: Bools = self._change(state, partition, place) < 0
        return less[state.cluster.racks]

    def _change(self, state: State, partition: int, place: int) -> Ints:
        """By rack: how many replicas or racks more would break the rule after a move there."""
        racks = state.cluster.racks
        factor = int(state.cluster.factor[partition])
        row = state.replicas[partition, :factor]
        count = np.bincount(racks[row], minlength=state.racks)
        own = racks[row[place]]
        limit = state.per_rack_max[factor]
        distinct = int((count > 0).sum())
        missing = max(0, state.racks_min[factor] - distinct)
        change = (count >= limit).astype(np.int32) - int(count[own] > limit)
        after = distinct - int(count[own] == 1) + (count == 0)
        change += np.maximum(0, state.racks_min[factor] - after).astype(np.int32) - missing
        change[own] = 0
        by_rack: Ints = change
        return by_rack

    def violations(self, state: State) -> int:
        return int(crowded(state).sum())


def crowded(state: State) -> Bools:
    """P: partitions with more replicas in a rack than necessary, or fewer racks than possible."""
    cluster = state.cluster
    racks: Ints = np.where(state.replicas == NO_BROKER, NO_BROKER, cluster.racks[state.replicas])
    same = (racks[:, :, None] == racks[:, None, :]) & (racks != NO_BROKER)[:, :, None]
    most = same.sum(axis=2).max(axis=1)
    ordered = np.sort(racks, axis=1)
    distinct = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1
    distinct -= (ordered[:, 0] == NO_BROKER).astype(distinct.dtype)
    found: Bools = (most > state.per_rack_max[cluster.factor]) | (
        distinct < state.racks_min[cluster.factor]
    )
    return found
