"""Bytes written per second: by producers to leaders, and by replication to followers."""

from __future__ import annotations

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.model import Cluster, Floats


class BytesIn(LoadGoal):
    name = "bytes-in"
    title = "Bytes in"
    unit = "bytes/s"

    def per_replica(self, cluster: Cluster) -> Floats:
        return cluster.bytes_in
