"""A partition below min.insync.replicas does not move, except off a replica that is not in sync.

Kafka removes old replicas only when all new ones are in sync, so a move never takes a partition
below its limit. But one that is below already needs its followers, and the bandwidth of its
leader, to become writable again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import Bools, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class MinIsr(HardGoal):
    name = "min-isr"
    title = "min.insync.replicas"

    def allowed(self, state: State, partition: int, place: int, to: Numbers) -> Bools:
        cluster = state.cluster
        stays = cluster.below_min_isr[partition] and not cluster.lagging[partition, place]
        return np.full(len(to), not stays)

    def violations(self, state: State) -> int:
        """Partitions below the limit of which a replica in sync would leave."""
        cluster = state.cluster
        left = ~(cluster.replicas[:, :, None] == state.replicas[:, None, :]).any(axis=2)
        return int(((left & ~cluster.lagging).any(axis=1) & cluster.below_min_isr).sum())
