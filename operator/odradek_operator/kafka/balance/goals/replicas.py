"""The number of replicas."""

from __future__ import annotations

import numpy as np

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.model import Cluster, Floats


class Replicas(LoadGoal):
    name = "replicas"
    title = "Replicas"
    unit = "replicas"
    counted = True

    def per_replica(self, cluster: Cluster) -> Floats:
        return np.ones(cluster.partitions)
