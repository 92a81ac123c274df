"""Bytes sent per second by leaders: to consumers, and to each follower what producers write."""

from __future__ import annotations

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.model import Cluster, Floats


class BytesOut(LoadGoal):
    name = "bytes-out"
    title = "Bytes out"
    unit = "bytes/s"

    def per_leader(self, cluster: Cluster) -> Floats:
        return cluster.bytes_out + cluster.bytes_in * (cluster.factor - 1)
