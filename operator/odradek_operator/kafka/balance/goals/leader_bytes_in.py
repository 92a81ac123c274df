"""Bytes per second from producers, which only leaders receive: validation costs them CPU."""

from __future__ import annotations

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.model import Cluster, Floats


class LeaderBytesIn(LoadGoal):
    name = "leader-bytes-in"
    title = "Bytes from producers"
    unit = "bytes/s"

    def per_leader(self, cluster: Cluster) -> Floats:
        return cluster.bytes_in
