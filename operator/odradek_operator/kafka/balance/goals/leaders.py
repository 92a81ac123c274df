"""The number of preferred leaders."""

from __future__ import annotations

import numpy as np

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.model import Cluster, Floats


class Leaders(LoadGoal):
    name = "leaders"
    title = "Leaders"
    unit = "leaders"
    counted = True

    def per_leader(self, cluster: Cluster) -> Floats:
        return np.ones(cluster.partitions)
