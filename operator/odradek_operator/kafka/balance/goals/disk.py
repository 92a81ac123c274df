"""The bytes of all replicas; a broker with a larger disk has a larger share."""

from __future__ import annotations

import numpy as np

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.model import Bools, Cluster, Floats


class DiskUse(LoadGoal):
    name = "disk"
    title = "Disk use"
    unit = "bytes"

    def per_replica(self, cluster: Cluster) -> Floats:
        return cluster.size_bytes

    def shares(self, cluster: Cluster, counted: Bools) -> Floats:
        room = np.where(counted, cluster.disk_bytes_max, 0.0)
        if not np.isfinite(room).all() or room.sum() <= 0:
            return super().shares(cluster, counted)
        shares: Floats = room / room.sum()
        return shares
